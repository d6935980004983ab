"""Tells whose a message is that came over the broker: the tenant of the broker's user that published it.

RabbitMQ checks the property `user_id`: it is the user that published, or the broker refuses. A message without it may
be anybody's, and counts to the tenant `default`; where tenants are required it is refused. The manager sends tasks of
all tenants, each under its key. Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from ratchet.bus.protocol import Delivery
from ratchet.bus.retry_policy import SENT_BY
from ratchet.bus.topology import MANAGER, tenants_user
from ratchet.logs.tenants import DEFAULT
from ratchet.service.errors import Reject


class Senders:
    """Knows the broker's users of the tenants, and the manager's.

    `own_user`: the one that this process logs in as. Where the fleet has one user for all, it is the manager's, too.
    """

    def __init__(
        self, tenants: Collection[str], namespace: str, *, is_required: bool, own_user: str | None = None
    ) -> None:
        self._by_user = {namespace + tenants_user(tenant): tenant for tenant in tenants}
        self._managers = {namespace + MANAGER, own_user} - {None}
        self._own_user = own_user
        self._is_required = is_required

    def is_manager(self, delivery: Delivery) -> bool:
        """Tell whether the manager published it. It may name any tenant, and the agents registered with it."""
        return self._publisher_of(delivery) in self._managers

    def tenant_of(self, delivery: Delivery) -> str:
        """Return the tenant whose message it is.

        Raises Reject where that has to be known and is not: also for a tenant's message that came back from the dead
        letters by another user, so that it never counts to another tenant.
        """
        if (tenant := self._by_user.get(self._publisher_of(delivery) or "")) is not None:
            return tenant
        if delivery.user_id is None and (user := delivery.headers.get(SENT_BY)) in self._by_user:
            raise Reject(f"it was sent on, so the broker can't tell that it is {user}'s: publish it again as that user")
        if self._is_required:
            raise Reject(
                "this fleet takes messages of tenants alone (RATCHET_REQUIRE_TENANT), and this one's user_id is not "
                f"that of one: publish it as {', '.join(sorted(self._by_user)) or 'a user of RATCHET_TENANTS'}, with "
                "the property user_id"
            )
        return DEFAULT

    def _publisher_of(self, delivery: Delivery) -> str | None:
        """Return the user that published it first. A retry is published by our own user, and says whose it was."""
        if delivery.user_id is not None and delivery.user_id == self._own_user:
            return str(delivery.headers.get(SENT_BY, delivery.user_id))
        return delivery.user_id
