"""The ledger of decisions as lists: read on from where it was read to, and once only. Blocks; safe in several threads.

In memory is one small entry a decision, and a record an experiment; decisions shown are read again from their lines.
A line of an older version may be of any size: its reason is cut, and one that is large as a whole is shown without its
evidence. The ledger keeps it as it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from ratchet.adapters.decisions import FILE_NAME, DecisionLedger, Mark, version_of
from ratchet.experiments.records import ExperimentFold, ExperimentRecord
from ratchet.service.errors import LONGEST_REASON
from schemas.records.decision import Decision

LARGEST_LINE = 1024 * 1024
"""Bytes. What is written now has at most a tenth of it."""


@dataclass(frozen=True, slots=True)
class DecisionPlace:
    """A decision's number, and where its line is."""

    sequence: int
    agent_id: str
    version: str | None
    before: Mark
    shown: Decision | None = None
    """The parts shown of a line that is too large to be read for each who asks."""


class DecisionBook:
    def __init__(self, ledger: DecisionLedger) -> None:
        self._ledger = ledger
        self._lock = Lock()
        self._end = Mark()
        self._places: list[DecisionPlace] = []
        self._fold = ExperimentFold()

    def read_on(self) -> list[Decision]:
        """Return the decisions since the last call, without the evidence. Raises RegistryError, NotAllowed."""
        with self._lock:
            return list(self._new())

    def page(self, *, limit: int, before: int | None, agent_id: str | None, version: str | None) -> list[Decision]:
        """The newest, whole; `before` this number. Raises RegistryError."""
        chosen: list[DecisionPlace] = []
        for place in reversed(self._current()):
            if len(chosen) == limit:
                break
            if (before is None or place.sequence < before) and _is_about(place, agent_id, version):
                chosen.append(place)
        return [self._whole(place) for place in chosen]

    def decisions_on(self, agent_id: str, version: str) -> list[Decision]:
        """Every decision on a version, the oldest first. Raises RegistryError."""
        return [self._whole(place) for place in self._current() if _is_about(place, agent_id, version)]

    def experiments(self) -> list[ExperimentRecord]:
        """Return the experiments in the order they began; their decisions are without evidence.

        Raises RegistryError.
        """
        self._current()
        return list(self._fold.records.values())

    def experiment(self, experiment_id: str) -> ExperimentRecord | None:
        """With the evidence it was ended on. Raises RegistryError."""
        places = self._current()
        record = self._fold.records.get(experiment_id)
        if record is None or record.ended is None:
            return record
        return replace(record, ended=self._whole(places[record.ended.sequence - 1]))

    def _current(self) -> Sequence[DecisionPlace]:
        with self._lock:
            for _ in self._new():
                pass
            return self._places

    def _new(self) -> Iterator[Decision]:
        for decision, end in self._ledger.read(self._end):
            light = _cut(decision).model_copy(update={"evidence": {}})
            shown = light if end.bytes - self._end.bytes > LARGEST_LINE else None
            self._fold.add(light)
            version = version_of(decision)
            self._places.append(DecisionPlace(decision.sequence, decision.agent_id, version, self._end, shown))
            self._end = end
            yield light

    def _whole(self, place: DecisionPlace) -> Decision:
        return place.shown or _cut(self._ledger.next_decision(place.before))


def _cut(decision: Decision) -> Decision:
    more = len(decision.reason) - LONGEST_REASON
    if more <= 0:
        return decision
    note = f"… ({more:,} more characters in line {decision.sequence} of {FILE_NAME})"
    return decision.model_copy(update={"reason": decision.reason[:LONGEST_REASON] + note})


def _is_about(place: DecisionPlace, agent_id: str | None, version: str | None) -> bool:
    return agent_id in (None, place.agent_id) and version in (None, place.version)
