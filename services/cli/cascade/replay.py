"""Moves of cascades' shares, made again from the logs and held against the ledger of decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ratchet.adapters.decisions import DecisionLedger
from ratchet.experiments.cascade_log import read_pairs, read_routed, replay_decision
from schemas.records.cascade import CascadeState
from schemas.records.decision import MoveCascade

BY_PROOF = ("raise", "fall")


@dataclass(frozen=True, slots=True)
class ReplayedMove:
    """A decision, and what the logs lead to. `again`: None where they lead to no move."""

    sequence: int
    agent_id: str
    cause: str
    again: str | None
    e: float | None
    e_again: float | None

    @property
    def holds(self) -> bool:
        return self.again == self.cause and self.e == self.e_again

    @property
    def sentence(self) -> str:
        said = f"decision {self.sequence}, {self.agent_id}: {self.cause}"
        if self.holds:
            return f"{said}: the same again, e = {self.e:.4g}"
        return f"{said} at e = {self.e}; the logs give {self.again} at e = {self.e_again}"


def replayed_moves(ledger: DecisionLedger, logs_dir: Path, agent_id: str | None = None) -> Iterator[ReplayedMove]:
    """Raises RegistryError, JournalError."""
    states: dict[str, CascadeState] = {}
    for decision, _ in ledger.read():
        move = decision.move
        if not isinstance(move, MoveCascade):
            continue
        before = states.get(decision.agent_id)
        states[decision.agent_id] = move.state
        if before is None or move.cause not in BY_PROOF or agent_id not in (None, decision.agent_id):
            continue
        test = "not_worse" if move.cause == "raise" else "worse"
        routed, pairs = read_routed(logs_dir, decision.agent_id, before), read_pairs(logs_dir, before)
        again, trial = replay_decision(before, routed, pairs, move.state.order)
        by = trial.cascade.decided_by
        logged = decision.evidence.get(test)
        yield ReplayedMove(
            decision.sequence,
            decision.agent_id,
            move.cause,
            again,
            float(logged) if isinstance(logged, int | float) else None,
            getattr(by, test) if again is not None and by is not None else None,
        )
