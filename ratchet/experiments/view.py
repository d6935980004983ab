"""One experiment for people: what the ledger has on it, and what the logs give when they are read again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ratchet.experiments.experiment import Experiment, ExperimentSnapshot
from ratchet.experiments.records import ExperimentRecord
from ratchet.experiments.replay import plan_of, replayed_together
from ratchet.service.errors import JournalError
from schemas.api.experiments import ExperimentDetail
from schemas.messages.base import explain
from schemas.records.evidence import ExperimentDecision, ExperimentPlan, HistoryPoint


@dataclass(frozen=True, slots=True)
class ExperimentView:
    """`trouble` says why there is no history, where the logs can't be read; the verdict is then the ledger's."""

    record: ExperimentRecord
    plan: ExperimentPlan | None
    decision: ExperimentDecision | None
    history: tuple[HistoryPoint, ...] = ()
    trouble: str | None = None

    def detail(self) -> ExperimentDetail:
        """Return what the API and the report show."""
        return ExperimentDetail(
            **dict(self.record.summary()),
            running=self.record.running,
            plan=self.plan,
            decision=self.decision,
            history=list(self.history),
            trouble=self.trouble,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return what --json prints: the record, the state of the evidence, and its history."""
        return self.record.as_dict() | {
            "plan": self.plan and self.plan.model_dump(mode="json"),
            "decision": self.decision and self.decision.model_dump(mode="json"),
            "history": [point.model_dump(mode="json") for point in self.history],
            "trouble": self.trouble,
        }


def view_of(record: ExperimentRecord, logs_dir: Path) -> ExperimentView:
    return views_of([record], logs_dir)[0]


def views_of(records: Iterable[ExperimentRecord], logs_dir: Path) -> list[ExperimentView]:
    """All of them in one pass over the logs; where that fails, one by one, so that one old one spoils no other."""
    asked = list(records)
    plans = {record.experiment_id: _plan(record) for record in asked}
    try:
        state = replayed_together([record.running for record in asked if plans[record.experiment_id]], logs_dir)
    except JournalError as error:
        if len(asked) == 1:
            return [_unread(asked[0], str(error))]
        return [view_of(record, logs_dir) for record in asked]
    return [
        view_of_state(record, state[record.experiment_id])
        if plans[record.experiment_id]
        else _unread(record, _foreign(record))
        for record in asked
    ]


def view_of_state(record: ExperimentRecord, state: Experiment | ExperimentSnapshot) -> ExperimentView:
    return ExperimentView(record, state.plan, state.decision, state.history)


def _unread(record: ExperimentRecord, trouble: str) -> ExperimentView:
    return ExperimentView(record, _plan(record), record.verdict, trouble=trouble)


def _plan(record: ExperimentRecord) -> ExperimentPlan | None:
    try:
        return plan_of(record.running)
    except ValidationError:
        return None


def _foreign(record: ExperimentRecord) -> str:
    """The reason why its parameters are no plan."""
    try:
        plan_of(record.running)
    except ValidationError as error:
        return f"its plan is of another version of ratchet: {explain('plan', error)}"
    raise AssertionError(f"{record.experiment_id} has a plan")
