"""Declares an operation: one line below the line of its route says who may call it, its effect, and what it is in MCP.

The access rule, the roles in the OpenAPI document, and the MCP tool or resource are made from the two lines. A service
with a route that has no such line does not start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, TypeVar

from ratchet.http.access.roles import Role

F = TypeVar("F", bound=Callable[..., Any])
Who = Role | Literal["anyone", "submitter:own"]

VIEWER, SUBMITTER, OPERATOR, ADMIN, RUNNER = Role
ANYONE: Literal["anyone"] = "anyone"
"""No token is needed."""
OWN_TASKS: Literal["submitter:own"] = "submitter:own"
"""A submitter, who reaches the tasks of its own token's subject; another's is as if it were not there."""


Reach = Literal["own", "any", "fleet"]
"""The reach of a caller who is bound to a tenant: what is its tenant's own, while what others have is as if it were not
there; what is the same for any tenant; or nothing, where a route concerns the whole fleet."""


class Effect(Enum):
    """An effect on the fleet. The audit goes by it, and an MCP client, which may ask its user first."""

    READS = "changes nothing"
    WORKS = "puts work in: audited with its outcome, for the task itself is in the fleet's own log"
    ADDS = "changes the fleet; called twice, it may do it twice"
    SETS = "changes what can be set back; called twice is called once"
    REPLACES = "takes what is in use out of it, or puts it away; called twice is called once"

    @property
    def changes(self) -> bool:
        """True where it is audited and synced before it is done, and not done if that fails."""
        return self not in (Effect.READS, Effect.WORKS)


@dataclass(frozen=True, slots=True)
class Operation:
    """A declared operation. `roles` is None where anyone may call it, without a token.

    `own_only`: those of `roles` that reach only the tasks of their own token's subject. `mcp`: what the MCP server
    needs besides the route itself (`x-mcp` of the OpenAPI document).
    """

    roles: frozenset[Role] | None
    own_only: frozenset[Role] = frozenset()
    effect: Effect = Effect.READS
    reach: Reach = "fleet"
    title: str | None = None
    mcp: Mapping[str, Any] = field(default_factory=dict)


def operation(
    *who: Who,
    effect: Effect = Effect.READS,
    reach: Reach = "fleet",
    title: str | None = None,
    tool: str | None = None,
    resource: str | None = None,
    given: Mapping[str, Any] | None = None,
    hides: tuple[str, ...] = (),
    answer_s: float = 0.0,
    follow: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Declare the function below a route's line as an operation.

    `tool` is its name as an MCP tool, `resource` its address as an MCP resource without `ratchet://`. Of a tool:
    `given` are arguments with a default of the tool's own, `hides` those it does not have, `answer_s` the seconds that
    an answer may take beyond the usual. `follow`: the route answers at once with a `Location`; the tool can ask there
    until `state` is one of these.
    """
    roles = None if ANYONE in who else frozenset(Role(one.removesuffix(":own")) for one in who)
    own_only = frozenset({SUBMITTER} if OWN_TASKS in who else ())
    told = {
        "tool": tool,
        "resource": resource,
        "given": given,
        "hides": list(hides),
        "answer_s": answer_s,
        "follow": list(follow),
    }
    reach = "own" if own_only else reach
    declared = Operation(roles, own_only, effect, reach, title, {name: value for name, value in told.items() if value})

    def declare(function: F) -> F:
        function.operation = declared  # type: ignore[attr-defined]
        return function

    return declare


def operation_of(endpoint: Any) -> Operation | None:
    """Return what was declared of a route's function."""
    found: Operation | None = getattr(endpoint, "operation", None)
    return found
