"""Asks the trainer for a new adapter when there is enough to learn from. One request at a time for each agent.

What is counted is noted in the index at each turn: it survives a restart; losing the index only delays a training.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from pydantic import Field, ValidationError

from ratchet.adapters.taught_logs import is_kept, words_key
from ratchet.bus.protocol import Bus, derived_id
from ratchet.bus.topology import TRAINING
from ratchet.logs.names import INTERACTIONS, is_own
from ratchet.runs.run import TrainingRun
from ratchet.service.errors import StorageUnavailable
from ratchet.service.telemetry import Log
from schemas.messages.base import Metadata, Record
from schemas.messages.training import AdapterTrained, TrainRequest
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.training.trigger import (
    TrainingPolicy,
    TrainingState,
    due,
    scorer_of,
    shows,
    teaches,
    uses_up,
)

log = Log("training")

GIVE_UP_AFTER_S = 24 * 3600.0
"""A request without an answer for so long is taken for lost."""
KNOWN_PLACES = 4096
"""Groups whose places are known: no training takes more by default."""


@dataclass(eq=False)
class TrainingScheduler:
    """One agent's.

    `clock` is for people; what has to be waited for is counted by `even` (`DeadlineClock.even`).
    """

    agent_id: str
    bus: Bus
    ledger: Ledger
    policy: TrainingPolicy
    clock: Callable[[], datetime]
    even: Callable[[], float]

    def __post_init__(self) -> None:
        self._note = f"training/{self.agent_id}"
        self._ended = EndedRuns(self.agent_id, self.ledger)
        self._state = TrainingState()
        self._noted = 0
        self._sent = False
        self._places = deque[tuple[int, str]](maxlen=KNOWN_PLACES)
        """Positions of groups that were counted since the start: where their lines end, and who scored them."""

    def start(self) -> None:
        """Read the state, once the ledger is open. A pending request is sent again: the trainer knows it by its id."""
        note = self.ledger.index.note(self._note)
        self._state = msgspec.json.decode(note, type=TrainingState) if note else TrainingState()
        for window in ("since", "asked_since"):
            if not self.ledger.has_place(INTERACTIONS, getattr(self._state, window)):
                log.warning("window-anew", "the log is another one now: the next training reads it from its beginning")
                setattr(self._state, window, 0)
        asked = self._state.requested_even_s
        if self._state.requested_at and (asked is None or asked > self.even()):
            waited_s = self.clock().timestamp() - self._state.requested_at
            self._state.requested_even_s = self.even() - min(max(waited_s, 0.0), GIVE_UP_AFTER_S)
        self._noted = self._state.groups
        self._ended.start()

    @property
    def groups(self) -> int:
        """Groups with something to learn from by the newest scorer, since the last training of whoever asked for it."""
        return self._state.groups

    @property
    def wanted(self) -> int:
        """The groups that bring a training; 0: it is not asked for by count."""
        return self.policy.after_groups

    @property
    def pending(self) -> str | None:
        """The request that is not answered yet."""
        return self._state.pending

    @property
    def open_run(self) -> TrainingRun | None:
        """The same as a run that waits for a trainer; once one has it, it has a record of it."""
        if self._state.pending is None:
            return None
        return TrainingRun(request=self._request(self._state.pending, parent=None), asked_at=self._asked_at)

    @property
    def ended_runs(self) -> list[TrainingRun]:
        """The newest that were heard of, by whomever they were asked for; the newest last."""
        return self._ended.runs

    @property
    def runs(self) -> list[TrainingRun]:
        """All that is known of here."""
        return [*self._ended.runs, *filter(None, [self.open_run])]

    def note_closed(self, lines: Sequence[Interaction]) -> None:
        if is_own(lines[0].arm.experiment_id):
            return
        if any(line.score is not None for line in lines):
            self._state.scored_by(scorer_of(lines[0]))
        may_teach = teaches(lines, self.policy.baseline) or (self.policy.references_teach and shows(lines))
        if may_teach and not is_kept(words_key(lines[0].input), self.policy.replay_share):
            self._state.groups += 1
            self._places.append((self.ledger.positions()[INTERACTIONS], self._state.scorer))

    def note_learned(self, version: str, start: int, end: int) -> None:
        """This version was trained on these bytes of the log, whoever asked for it: the next training goes on there.

        `start`: 0 where it read from the first byte that is kept. Groups of which it is not known where they lie were
        counted before the start, and count as learned from. A card of another log's bytes says nothing of this one.
        """
        state = self._state
        if not start <= state.since < end or not self.ledger.has_place(INTERACTIONS, end):
            return
        state.window_before, state.since = (version, state.since), end
        left = [scorer for place, scorer in self._places if place > end]
        state.groups, state.of_others = left.count(state.scorer), {}
        for scorer in left:
            if scorer != state.scorer:
                state.of_others[scorer] = state.of_others.get(scorer, 0) + 1
        log.info("window-used", f"{version} was trained on what came in before: {state.groups} groups since")
        self._save()

    def stop(self) -> None:
        """Write the count, before the ledger is closed. If that fails, a training is only delayed."""
        with suppress(StorageUnavailable, sqlite3.Error):
            self._write_down()

    async def ask_if_due(self, *, allowed: bool, primary: str) -> None:
        """Raises BusError. `allowed`: no experiment runs and nothing waits for one."""
        waited_s = self._waited_s
        if self._state.pending and waited_s > GIVE_UP_AFTER_S:
            self._lose(self._state.pending)
        if self._state.pending is None and allowed and (why := due(self._state, self.policy, waited_s)):
            self._begin(why)
            log.info("training-requested", why, agent_id=self.agent_id, request_id=self._state.pending)
        if self._state.groups != self._noted:
            self._write_down()
        if self._state.pending and not self._sent:
            await self._send(self._state.pending, primary)

    def note_outcome(self, outcome: AdapterTrained) -> None:
        """The trainer answered."""
        if outcome.metadata.timestamp is None:
            dated = outcome.metadata.model_copy(update={"timestamp": self.clock()})
            outcome = outcome.model_copy(update={"metadata": dated})
        if outcome.request_id != self._state.pending:
            self._ended.record(outcome, None, None)
            return
        self._ended.record(outcome, self._request(outcome.request_id, outcome.parent_version), self._asked_at)
        self._over(used=uses_up(outcome))

    def give_back(self, version: str) -> None:
        """Give back the window of a version that proved nothing: it is read again, with what came in since.

        Of a training that was not asked for here it is known while no other came after it.
        """
        runs = (run for run in reversed(self.ended_runs) if run.outcome and run.outcome.adapter_version == version)
        run = next(runs, None)
        before = self._state.window_before
        if run is not None and run.request is not None:
            since = run.request.since
        elif before is not None and before[0] == version:
            since = before[1]
        else:
            return
        if since >= self._state.since:
            return
        log.info("window-back", f"{version} proved nothing: the next training reads its data again", version=version)
        self._state.since = since
        self._save()

    def _lose(self, request_id: str) -> None:
        reason = "no trainer answered within a day: is one there (ratchet status)? see ratchet dead-letters list"
        log.error("training-lost", f"{request_id}: {reason}", agent_id=self.agent_id)
        self.note_outcome(AdapterTrained(request_id=request_id, agent_id=self.agent_id, status="failed", reason=reason))

    def _over(self, *, used: bool) -> None:
        """Close the pending training. Where nothing of its window was used, the next one begins where it began."""
        self._state.pending = None
        if not used:
            self._state.since = self._state.asked_since
        self._save()

    @property
    def _waited_s(self) -> float:
        """Since the last request; infinite where there was none."""
        asked = self._state.requested_even_s
        return float("inf") if asked is None else self.even() - asked

    def _begin(self, why: str) -> None:
        state = self._state
        state.runs += 1
        state.pending = f"{self.agent_id}-{self.ledger.sequence}-{state.runs}"
        state.requested_at, state.requested_even_s = self.clock().timestamp(), self.even()
        state.why = why
        state.groups, state.of_others = 0, {}
        state.asked_since, state.since = state.since, self.ledger.positions()[INTERACTIONS]
        self._sent = False
        self._save()

    async def _send(self, request_id: str, primary: str) -> None:
        request = self._request(request_id, primary)
        await self.bus.publish(
            TRAINING, request.encode(), type=TrainRequest.TYPE, message_id=derived_id(request_id, "train")
        )
        self._sent = True

    def _request(self, request_id: str, parent: str | None) -> TrainRequest:
        asked = {"timestamp": self._asked_at, "source": "orchestrator", "reason": self._state.why}
        return TrainRequest(
            request_id=request_id,
            agent_id=self.agent_id,
            metadata=Metadata.model_validate(asked),
            parent_version=parent,
            since=self._state.asked_since,
            hyperparameters={"baseline": self.policy.baseline} if self.policy.baseline else {},
        )

    @property
    def _asked_at(self) -> datetime:
        return datetime.fromtimestamp(self._state.requested_at, UTC)

    def _save(self) -> None:
        """Write the state to disk at once, so that a request is never sent again."""
        self._write_down()
        self.ledger.commit()

    def _write_down(self) -> None:
        """Write the state, on disk with the index's next commit."""
        self.ledger.index.write_note(self._note, msgspec.json.encode(self._state))
        self._noted = self._state.groups
        metrics.useful_groups.labels(self.agent_id).set(self._noted)


KEPT = 100


class EndedRunsNote(Record):
    """Trainings as in the index; the newest last."""

    runs: list[TrainingRun] = Field(default_factory=list)


class EndedRuns:
    """The newest ends of one agent's trainings, as the orchestrator heard of them, kept in the index.

    The trainer's own records hold more, but fewer runs; a trainer of another make keeps none. A lost index loses these.
    """

    def __init__(self, agent_id: str, ledger: Ledger) -> None:
        self._ledger = ledger
        self._note = f"ended-trainings/{agent_id}"
        self._runs: dict[str, TrainingRun] = {}

    def start(self) -> None:
        """Read the ended runs, once the ledger is open."""
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
