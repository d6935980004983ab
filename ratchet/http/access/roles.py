"""The roles, and who calls. Which role may call a route is declared with it (`ratchet/http/operation.py`); roles are
sets, no hierarchy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ratchet.logs.tenants import DEFAULT, R, key_of, tenant_of, with_own_ids


class Role(StrEnum):
    VIEWER = "viewer"
    """Reads everything."""
    SUBMITTER = "submitter"
    """Uses the fleet: tasks, chat, feedback, answers, scores; reads what came of its own tasks."""
    OPERATOR = "operator"
    """Does everything, also what changes which adapter answers."""
    ADMIN = "admin"
    """Sets up tenants and their quotas."""
    RUNNER = "runner"
    """Asks agents for tokens on behalf of programs, and the scorer whether an answer passes: nothing else, for it lies
    where code of strangers runs."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request: the token's `sub` and role; `token_id` is its `jti`, None without tokens.

    The one place that decides who owns a task, and who may see it. `own_only`: the row of the matrix says so. `tenant`:
    the one its tasks belong to. `is_bound`: it reaches nothing of other tenants.
    """

    name: str
    role: Role
    token_id: str | None = None
    own_only: bool = False
    tenant: str = DEFAULT
    is_bound: bool = False

    @property
    def owner(self) -> str | None:
        """Return the owner of the tasks it submits.

        Without tokens nobody owns them, as nobody owns those from the broker.
        """
        return None if self.token_id is None else self.name

    def may_see(self, key: str, owner: str | None) -> bool:
        """Tell whether it may see a task. `key`: the one under which logs know the task."""
        if self.is_bound and tenant_of(key) != self.tenant:
            return False
        return not self.own_only or owner == self.owner

    def may_use(self, agents_tenant: str | None) -> bool:
        """Tell whether it may use and look at an agent of this tenant; None: one for all tenants."""
        return not self.is_bound or agents_tenant in (None, self.tenant)

    def may_change(self, agents_tenant: str | None) -> bool:
        return not self.is_bound or agents_tenant == self.tenant

    def key_of(self, own_id: str) -> str:
        """Return the key of a task, or of a session, that the caller names by its own id."""
        return key_of(self.tenant, own_id)

    def show(self, record: R) -> R:
        """Return a record with the ids that the caller knows."""
        return record if self.tenant == DEFAULT else with_own_ids(record)


LOCAL = Caller("local", Role.OPERATOR)
"""Everyone on this machine, where the service listens on loopback only and asks for no tokens."""
