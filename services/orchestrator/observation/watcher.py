"""Looks, a few times a second, at what has changed in the fleet besides its tasks, and makes events of it.

It looks at what others hold in memory, and reads the ledger of decisions on where an agent's adapters have changed: so
an operator's decisions are told as those of the orchestrator are. Training runs it sees by their records on disk. Tasks
tell of themselves (`settled`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from time import monotonic

from ratchet.adapters.decisions import FILE_NAME, DecisionLedger, Mark, version_of
from ratchet.experiments.experiment import Experiment
from ratchet.experiments.records import ExperimentFold, ExperimentRecord
from ratchet.http.work import Threads
from ratchet.runs.api import TrainingRuns
from ratchet.service.errors import LONGEST_REASON
from schemas.api.events import AdapterMoved, DecisionMade, ExperimentMoved, QueueDepth, QueuesLooked, TrainingMoved
from schemas.api.runs import RunView
from schemas.messages.adapter_event import AdapterMove
from schemas.messages.base import Record
from schemas.messages.result import Result
from schemas.messages.training import AdapterTrained
from schemas.messages.work import Work
from schemas.records.decision import Conclude, Decision
from schemas.records.interaction import Interaction
from schemas.records.registry import AgentAdapters
from services.orchestrator.observation.event_hub import EventHub
from services.orchestrator.observation.gauges import QueueSnapshots
from services.orchestrator.observation.served_quality import AgentRates, Ended
from services.orchestrator.promotion.promoter import Promoter

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
        """Return an experiment with the evidence that ended it. Raises RegistryError."""
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


QUEUES_EVERY_S = 2.0
RUNS_EVERY_S = 1.0
RATES_EVERY_S = 1.0
MOVES: dict[str, AdapterMove] = {
    "start_experiment": "experiment_started",
    "promote": "promoted",
    "settle": "settled",
    "roll_back": "rolled_back",
    "reject": "rejected",
    "archive": "retired",
}


@dataclass(eq=False)
class Watcher:
    hub: EventHub
    book: DecisionBook
    promoters: Mapping[str, Promoter]
    queues: QueueSnapshots
    runs: TrainingRuns
    threads: Threads

    def __post_init__(self) -> None:
        self._adapters: dict[str, AgentAdapters] = {}
        self._units: dict[tuple[str, str], tuple[str, int]] = {}
        self._run_watch = RunWatch()
        self._look_at_runs_after = float("-inf")
        self._depths: QueuesLooked | None = None
        self._looked_at = float("-inf")
        self._rates = AgentRates()
        self._rates_at = float("-inf")

    async def start(self) -> None:
        """Pass over the decisions so far: they are no news. Raises RegistryError."""
        await self.threads.run(self.book.read_on)
        self._adapters = {agent: promoter.arms.adapters for agent, promoter in self.promoters.items()}
        await self._look_at_runs()

    async def turn(self) -> None:
        """Raises RegistryError, BusError; the next turn goes on."""
        await self._look_at_adapters()
        for agent_id, promoter in self.promoters.items():
            for _, experiment in promoter.arms.trials:
                self._look_at_experiment(agent_id, experiment)
        if self.hub.clients and monotonic() > self._look_at_runs_after:
            await self._look_at_runs()
        if self.hub.clients and monotonic() - self._rates_at > RATES_EVERY_S:
            self._rates_at = monotonic()
            for figures in self._rates.news(self._rates_at):
                self._publish("agent", figures)
        if self.hub.clients and monotonic() - self._looked_at > QUEUES_EVERY_S:
            await self._look_at_queues()

    def publish_settled(self, work: Work, lines: Sequence[Interaction], result: Result) -> None:
        """A task was closed. Costs next to nothing while nobody listens."""
        line, name = lines[0], (work.agent_id, work.registered_agent)
        self._rates.note(Ended(monotonic(), name, result.status == "ok", result.score, line.latencies.total_s))
        if not self.hub.clients:
            self.hub.pass_over()
            return
        self.hub.publish_task(
            "task.settled",
            {
                "task_id": work.task_id,
                "sequence": work.arm.sequence,
                "agent_id": work.agent_id,
                "status": result.status,
                "score": result.score,
                "adapter_version": line.adapter_version,
                "is_candidate": work.arm.is_candidate,
                "experiment_id": work.arm.experiment_id,
                "seconds": line.latencies.total_s,
                "at": line.timestamp,
            },
            work.owner,
        )

    def publish_training_end(self, message: AdapterTrained) -> None:
        """A training has ended."""
        if (moved := self._run_watch.end_message(message)) is not None:
            self._publish("training", moved)

    async def _look_at_adapters(self) -> None:
        now = {agent: promoter.arms.adapters for agent, promoter in self.promoters.items()}
        if all(now[agent] is self._adapters.get(agent) for agent in now):
            return
        for decision in await self.threads.run(self.book.read_on):
            self._publish("decision", _decision_event(decision))
            if (promoter := self.promoters.get(decision.agent_id)) and (event := _move_of(decision)):
                self._publish("adapter", _adapter_event(decision, event, promoter.arms.adapters))
        self._adapters = now

    def _look_at_experiment(self, agent_id: str, experiment: Experiment) -> None:
        evidence = experiment.evidence
        here = (experiment.plan.experiment_id, evidence.units)
        if self._units.get((agent_id, experiment.plan.kind)) == here:
            return
        self._units[agent_id, experiment.plan.kind] = here
        verdict = experiment.final.verdict if experiment.final else "continue"
        moved = ExperimentMoved(
            experiment_id=experiment.plan.experiment_id,
            agent_id=agent_id,
            units=evidence.units,
            candidate_units=evidence.candidate.units,
            share=evidence.share,
            gain=evidence.gain_score,
            harm=evidence.harm,
            verdict=verdict,
        )
        self._publish("experiment", moved)

    async def _look_at_runs(self) -> None:
        """Each second, or for a tenth of the time where the disk is slow."""
        began, ended = monotonic(), self._run_watch.messages
        views = await self.runs.views()
        self._look_at_runs_after = monotonic() + max(RUNS_EVERY_S, 9 * (monotonic() - began))
        if self._run_watch.messages == ended:
            for moved in self._run_watch.changes(views):
                self._publish("training", moved)

    async def _look_at_queues(self) -> None:
        self._looked_at = monotonic()
        snapshot = await self.queues.latest()
        depths = [
            QueueDepth(name=name, messages=state.messages, consumers=state.consumers)
            for name, state in snapshot.states.items()
            if state is not None
        ]
        looked = QueuesLooked(items=depths)
        if looked != self._depths:
            self._depths = looked
            self._publish("queues", looked)

    def _publish(self, kind: str, record: Record) -> None:
        self.hub.publish(kind, record.model_dump(mode="json"))


def _decision_event(decision: Decision) -> DecisionMade:
    return DecisionMade(
        sequence=decision.sequence,
        agent_id=decision.agent_id,
        kind=decision.move.kind,
        version=version_of(decision),
        who=decision.who,
        reason=decision.reason,
        at=decision.at,
    )


def _adapter_event(decision: Decision, event: AdapterMove, adapters: AgentAdapters) -> AdapterMoved:
    return AdapterMoved(
        agent_id=decision.agent_id,
        event=event,
        version=version_of(decision),
        reason=decision.reason,
        primary=adapters.primary,
        candidate=adapters.candidate,
        revision=decision.sequence,
    )


def _move_of(decision: Decision) -> AdapterMove | None:
    """None for a decision that changes nothing about who answers."""
    if isinstance(decision.move, Conclude):
        return None if decision.move.verdict == "unharmed" else decision.move.verdict
    return MOVES.get(decision.move.kind)


Name = tuple[str, str]
Seen = tuple[str, str | None, int | None]
"""State, stage and step."""


class RunWatch:
    """Follows the runs; those that were there at the first reading have not changed."""

    def __init__(self) -> None:
        self.messages = 0
        """Ends that came as messages: a view read before the last of them is older than what is known."""
        self._seen: dict[Name, Seen] | None = None

    def end_message(self, outcome: AdapterTrained) -> TrainingMoved | None:
        """A run's end as a message; None where reading was faster than the message."""
        self.messages += 1
        name, seen = (outcome.agent_id, outcome.request_id), (outcome.status, None, None)
        if self._seen is not None and self._seen.get(name) == seen:
            return None
        self._seen = (self._seen or {}) | {name: seen}
        return TrainingMoved(
            agent_id=outcome.agent_id,
            request_id=outcome.request_id,
            state=outcome.status,
            version=outcome.adapter_version,
            reason=outcome.reason,
        )

    def changes(self, views: Sequence[RunView]) -> list[TrainingMoved]:
        before = self._seen
        self._seen = {(view.agent_id, view.run_id): _view_key(view) for view in views}
        if before is None:
            return []
        return [_training_moved(view) for view in views if before.get((view.agent_id, view.run_id)) != _view_key(view)]


def _view_key(view: RunView) -> Seen:
    if view.progress is None:
        return view.state, None, None
    return view.state, view.progress.stage, view.progress.step


def _training_moved(view: RunView) -> TrainingMoved:
    return TrainingMoved(
        agent_id=view.agent_id,
        request_id=view.run_id,
        state="requested" if view.state == "queued" else view.state,
        version=view.adapter_version,
        reason=view.reason,
        step=view.progress.step if view.progress else None,
        steps=view.progress.steps if view.progress else None,
    )
