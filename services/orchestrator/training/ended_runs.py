"""How one agent's trainings ended, as the orchestrator heard it: the newest, in the index.

The trainer's own records hold more, but fewer runs; a trainer of another make keeps none. A lost index loses these.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, ValidationError

from ratchet.service.telemetry import Log
from ratchet.training_runs.run import TrainingRun
from schemas.messages.adapter_trained import AdapterTrained
from schemas.messages.base import Record
from schemas.messages.train_request import TrainRequest
from services.orchestrator.ledger.ledger import Ledger

log = Log("training")

KEPT = 100


class EndedRunsNote(Record):
    """As in the index; the newest last."""

    runs: list[TrainingRun] = Field(default_factory=list)


class EndedRuns:
    def __init__(self, agent_id: str, ledger: Ledger) -> None:
        self._ledger = ledger
        self._note = f"ended-trainings/{agent_id}"
        self._runs: dict[str, TrainingRun] = {}

    def start(self) -> None:
        """Once the ledger is open."""
        note = self._ledger.index.note(self._note)
        try:
            runs = EndedRunsNote.model_validate_json(note).runs if note else []
        except ValidationError as error:
            log.warning(
                "unreadable", f"note {self._note} of the index can't be read, earlier runs are missing: {error}"
            )
            runs = []
        self._runs = {run.run_id: run for run in runs}

    def record(self, outcome: AdapterTrained, request: TrainRequest | None, asked_at: datetime | None) -> None:
        """`request` where the orchestrator itself had asked. On disk with the index's next commit.

        The same run again takes the place of what was heard before.
        """
        known = self._runs.pop(outcome.request_id, None)
        if known is not None and request is None:
            request, asked_at = known.request, known.asked_at
        self._runs[outcome.request_id] = TrainingRun(request=request, asked_at=asked_at, outcome=outcome)
        while len(self._runs) > KEPT:
            del self._runs[next(iter(self._runs))]
        note = EndedRunsNote(runs=self.runs)
        self._ledger.index.write_note(self._note, note.model_dump_json(exclude_none=True).encode())

    @property
    def runs(self) -> list[TrainingRun]:
        """The newest last."""
        return list(self._runs.values())
