"""The roles, and who calls. Which role may call a route is declared with it (`ratchet/http/operation.py`); roles are
sets, no hierarchy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    VIEWER = "viewer"
    """Reads everything."""
    SUBMITTER = "submitter"
    """Uses the fleet: tasks, chat, feedback, answers, scores; reads what came of its own tasks."""
    OPERATOR = "operator"
    """Does everything, also what changes which adapter answers."""
    RUNNER = "runner"
    """Asks agents for tokens on behalf of programs, and the scorer whether an answer passes: nothing else, for it lies
    where code of strangers runs."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request: the token's `sub` and role; `token_id` is its `jti`, None without tokens.

    The one place that decides who owns a task, and who may see it. `own_only`: the row of the matrix says so.
    """

    name: str
    role: Role
    token_id: str | None = None
    own_only: bool = False

    @property
    def owner(self) -> str | None:
        """Return the owner of the tasks it submits.

        Without tokens nobody owns them, as nobody owns those from the broker.
        """
        return None if self.token_id is None else self.name

    def may_see(self, owner: str | None) -> bool:
        return not self.own_only or owner == self.owner


LOCAL = Caller("local", Role.OPERATOR)
"""Everyone on this machine, where the service listens on loopback only and asks for no tokens."""
