"""The life of an adapter version as a table: from which state it may move to which. Who may move it is not here."""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.service.errors import NotAllowed
from schemas.records.adapter_state import PRIMARY_STATES, AdapterState
from schemas.records.registry import AdapterEntry, AgentAdapters

__all__ = ["ALLOWED_MOVES", "PRIMARY_STATES", "AdapterState", "entry_of", "moved"]

_S = AdapterState

ALLOWED_MOVES: Mapping[AdapterState, frozenset[AdapterState]] = {
    _S.TRAINED: frozenset({_S.VALIDATED, _S.REJECTED}),
    _S.VALIDATED: frozenset({_S.CANARY, _S.PROBATION, _S.REJECTED}),
    _S.CANARY: frozenset({_S.PROBATION, _S.ROLLED_BACK, _S.INCONCLUSIVE, _S.ABORTED}),
    _S.PROBATION: frozenset({_S.STABLE, _S.SUPERSEDED, _S.ROLLED_BACK}),
    _S.STABLE: frozenset({_S.SUPERSEDED, _S.ROLLED_BACK}),
    _S.SUPERSEDED: frozenset({_S.STABLE, _S.PROBATION, _S.ARCHIVED}),
    _S.REJECTED: frozenset({_S.ARCHIVED}),
    _S.ROLLED_BACK: frozenset({_S.PROBATION, _S.ARCHIVED}),
    _S.INCONCLUSIVE: frozenset({_S.CANARY, _S.PROBATION, _S.ARCHIVED}),
    _S.ABORTED: frozenset({_S.CANARY, _S.PROBATION, _S.ARCHIVED}),
    _S.ARCHIVED: frozenset(),
}
"""Into probation from anywhere but canary is an operator's word; an inconclusive or aborted version may try again."""


def entry_of(agent: AgentAdapters, version: str) -> AdapterEntry:
    """Raises NotAllowed for a version nobody registered."""
    if (entry := agent.versions.get(version)) is None:
        raise NotAllowed(f"there is no version {version}; `ratchet adapters list` shows those there are")
    return entry


def moved(agent: AgentAdapters, version: str, to: AdapterState) -> AdapterEntry:
    """The version's entry in its new state. Raises NotAllowed if the table has no such move."""
    entry = entry_of(agent, version)
    if to not in ALLOWED_MOVES[entry.state]:
        options = ", ".join(sorted(ALLOWED_MOVES[entry.state])) or "nothing else"
        raise NotAllowed(f"{version} is {entry.state}, so it can't become {to}; from there it may become {options}")
    return entry.model_copy(update={"state": to})
