"""Send Results: to the queue of results, to the queue the user named, and to whoever asked for the same task later."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ratchet.bus.protocol import Bus, Delivery, derived_id
from ratchet.bus.retry_policy import SENT_BY
from ratchet.bus.topology import MANAGER, RESULTS, tenants_user
from ratchet.logs.tenants import DEFAULT, tenant_of, with_own_ids
from ratchet.service.errors import BusError, RatchetError, Reject
from ratchet.service.telemetry import Log
from schemas.messages.result import Result
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.tasks.admission import Origin


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


log = Log("answers")


class ReplyFailed(RatchetError):
    """A Result is in `results`, and one of the queues that were to get it too can't have it now."""


class ResultSender:
    """Every Result of one task has one message id, so that a user can tell a repetition."""

    def __init__(self, bus: Bus, ledger: Ledger) -> None:
        self._bus = bus
        self._ledger = ledger

    async def send(self, task_id: str, result: bytes, origin: Origin) -> None:
        """Send it to `results`, to the origin, and to those who waited. Returns when all are confirmed.

        Those of tenants other than `default` don't go to `results`, which others read. They have their own ids, unless
        who asked knows the task by its key (its correlation_id is the key), as the manager does.

        Raises BusError where the broker did not take it, ReplyFailed, StorageUnavailable where it is not known
        who waited, and whatever an origin makes the bus raise.
        """
        message_id = derived_id(task_id, "result")
        own = result
        waiters = self._ledger.index.waiters(task_id)
        if tenant_of(task_id) == DEFAULT:
            publish = self._bus.publish(
                RESULTS, result, type=Result.TYPE, message_id=message_id, correlation_id=origin.correlation_id
            )
        else:
            own = with_own_ids(Result.decode(result)).encode()
            publish = asyncio.sleep(0)
        if origin.reply_to is None and not waiters:
            await publish
            return
        origins = {origin, *(Origin(*waiter) for waiter in waiters)}
        replies = [
            self._reply(result if other.correlation_id == task_id else own, message_id, other)
            for other in origins
            if other.reply_to is not None
        ]
        published, *replied = await asyncio.gather(publish, *replies, return_exceptions=True)
        if isinstance(published, BaseException):
            raise published
        for error in replied:
            if isinstance(error, BaseException):
                raise ReplyFailed(f"{type(error).__name__}: {error}") from error
        if len(origins) > 1:
            await self._ledger.forget_waiters(task_id)

    async def refuse(self, task_id: str, reason: str, origin: Origin) -> None:
        """Tell a user, where the broken task named a queue, that it failed and why. Raises BusError."""
        if origin.reply_to is None:
            return
        result = Result(task_id=task_id[:200], status="failed", reason=reason).encode()
        try:
            await self._reply(result, derived_id(task_id[:200], "refused"), origin)
        except BusError:
            raise
        except Exception as error:
            log.error("refusal-untold", f"whoever sent task {task_id!r} can't be told that it is refused: {error!r}")

    async def _reply(self, result: bytes, message_id: str, origin: Origin) -> None:
        arrived = await self._bus.reply(
            origin.reply_to or "", result, type=Result.TYPE, message_id=message_id, correlation_id=origin.correlation_id
        )
        if not arrived:
            log.info("reply-queue-gone", "the queue named in reply_to is gone; the Result is in results and in the log")
