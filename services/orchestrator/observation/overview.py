"""The fleet at a glance: counts since the start, rates and latencies over the last minute, how each agent stands."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic

from prometheus_client.registry import Collector

from ratchet.bus.topology import DEAD_LETTERS, UNROUTABLE
from ratchet.experiments.served import unaudited_judge
from ratchet.service.errors import BusError
from ratchet.service.metrics import quantile
from schemas.api.status import (
    AgentFigures,
    LearningFigures,
    ReplicaView,
    ScoreFigure,
    StageFigure,
    Status,
    TaskFigures,
    WatchFigures,
)
from services.orchestrator import metrics
from services.orchestrator.agent_parts import AgentParts
from services.orchestrator.cascade.agent_cascade import AgentCascade
from services.orchestrator.clocks import now
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.observation.gauges import QueueSnapshots
from services.orchestrator.observation.served_quality import ServedQuality
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.settings import OrchestratorSettings

STAGES = ("queue", "generate", "score_queue", "score", "total")
LOOK_EVERY_S = 5.0
LOOKS = 13
"""Looks that are kept: the oldest is a minute old."""

Buckets = dict[float, float]


@dataclass(frozen=True, slots=True)
class Counted:
    """All the counters at one moment; `at` in seconds of a steady clock."""

    at: float
    closed: float
    stages: dict[str, Buckets]


@dataclass(eq=False)
class Overview:
    settings: OrchestratorSettings
    ledger: Ledger
    agents: Mapping[str, AgentParts]
    cascades: Mapping[str, AgentCascade]
    queues: QueueSnapshots
    quality: ServedQuality
    trouble: Callable[[], str | None]
    no_copies: Callable[[], str | None]

    def __post_init__(self) -> None:
        self._started_at = now()
        self._looks: deque[Counted] = deque(maxlen=LOOKS)

    async def look(self) -> None:
        """Call it every LOOK_EVERY_S seconds."""
        self._looks.append(count_now(monotonic()))

    async def status(self) -> Status:
        counted = count_now(monotonic())
        before = self._looks[0] if self._looks else None
        trouble = self.trouble()
        dead, unroutable = await self._count_lost()
        return Status(
            at=now(),
            started_at=self._started_at,
            ready=trouble is None,
            trouble=trouble,
            no_copies=self.no_copies(),
            tasks=self._tasks(counted, before),
            stages=[stage_figure(stage, counted, before) for stage in STAGES],
            scores=list(scores()),
            quality=self.quality.figures(),
            agents=[self._agent(name, agent) for name, agent in self.agents.items()],
            dead_letters=dead,
            has_manager=self.settings.manager_url is not None,
            unroutable=unroutable,
        )

    def _tasks(self, counted: Counted, before: Counted | None) -> TaskFigures:
        known, opened = self.ledger.index.count()
        ended = closed_by_status()
        return TaskFigures(
            known=known,
            open=opened,
            oldest_open_s=self.ledger.oldest_open_s(now()),
            answered=int(ended.get("ok", 0)),
            failed=int(ended.get("failed", 0)),
            expired=int(ended.get("expired", 0)),
            cancelled=int(ended.get("cancelled", 0)),
            repeated=int(total(metrics.tasks_repeated)),
            refused=int(total(metrics.tasks_refused)),
            per_s=_rate(counted, before),
        )

    def _agent(self, name: str, agent: AgentParts) -> AgentFigures:
        promoter, arms = agent.promoter, agent.promoter.arms
        adapters, experiment, training = arms.adapters, arms.experiment, promoter.training
        evidence = experiment.evidence if experiment else None
        cascade, reports = self.cascades.get(name), promoter.replicas.reports(monotonic())
        return AgentFigures(
            agent_id=name,
            primary=adapters.primary,
            candidate=adapters.candidate,
            program=adapters.programs.primary,
            program_candidate=adapters.programs.candidate,
            shared_learning=name in self.settings.shared_learning,
            frozen=adapters.frozen is not None,
            distrusted=adapters.distrusted is not None,
            unaudited=unaudited_judge(self.quality.scorer_of(name), audited=bool(self.settings.auditor)),
            experiment_id=experiment.plan.experiment_id if experiment else None,
            units=evidence.units if evidence else None,
            gain=evidence.gain_score if evidence else None,
            harm=evidence.harm if evidence else None,
            threshold=experiment.plan.threshold if experiment else None,
            watch=_watch(arms),
            since_base=adapters.versions[adapters.primary].since_base,
            held_up=promoter.held_up,
            replicas=[
                ReplicaView(replica=one.replica, loaded=list(one.loaded), refused=one.refused) for one in reports
            ],
            learning=LearningFigures(groups=training.groups, wanted=training.wanted, pending=training.pending),
            samples=agent.samples.figures(),
            cascade=cascade.view() if cascade is not None and cascade.trial is not None else None,
        )

    async def _count_lost(self) -> tuple[int | None, int | None]:
        try:
            states = (await self.queues.latest()).states
        except BusError:
            return None, None
        dead, unroutable = states.get(DEAD_LETTERS), states.get(UNROUTABLE)
        return (dead.messages if dead else None), (unroutable.messages if unroutable else None)


def _watch(arms: Arms) -> WatchFigures | None:
    running, watch = arms.adapters.watch, arms.watch
    if running is None or watch is None:
        return None
    return WatchFigures(
        experiment_id=running.experiment_id,
        treatment=running.arms[0],
        control=running.arms[1],
        units=watch.evidence.units,
        harm=watch.evidence.harm,
        threshold=watch.plan.threshold,
    )


def count_now(at: float) -> Counted:
    return Counted(at, sum(closed_by_status().values()), stage_buckets())


def total(counter: Collector) -> float:
    return sum(value for name, _, value in _samples(counter) if name.endswith("_total"))


def closed_by_status() -> dict[str, float]:
    """The users' tasks."""
    ended: dict[str, float] = {}
    for counter, sign in ((metrics.tasks_closed, 1), (metrics.own_tasks_closed, -1)):
        for name, labels, value in _samples(counter):
            if name.endswith("_total"):
                ended[labels["status"]] = ended.get(labels["status"], 0.0) + sign * value
    return ended


def stage_buckets() -> dict[str, Buckets]:
    """Stage → upper bound → how many took no longer."""
    found: dict[str, Buckets] = {stage: {} for stage in STAGES}
    for name, labels, value in _samples(metrics.stage_seconds):
        if name.endswith("_bucket"):
            found[labels["stage"]][float(labels["le"])] = value
    return found


def stage_figure(stage: str, now: Counted, before: Counted | None) -> StageFigure:
    earlier = before.stages[stage] if before else {}
    buckets = [(bound, count - earlier.get(bound, 0.0)) for bound, count in now.stages[stage].items()]
    count = max((count for _, count in buckets), default=0.0)
    return StageFigure(stage=stage, count=int(count), p50=quantile(0.5, buckets), p95=quantile(0.95, buckets))


def scores() -> Iterator[ScoreFigure]:
    """Return the scores by agent and version."""
    counts: dict[tuple[str, str], float] = {}
    sums: dict[tuple[str, str], float] = {}
    for name, labels, value in _samples(metrics.sample_score):
        of = labels.get("agent", ""), labels.get("adapter_version", "")
        if name.endswith("_count"):
            counts[of] = value
        elif name.endswith("_sum"):
            sums[of] = value
    for (agent_id, version), count in sorted(counts.items()):
        if count:
            mean = sums[agent_id, version] / count
            yield ScoreFigure(agent_id=agent_id, adapter_version=version, samples=int(count), mean=mean)


def _rate(now: Counted, before: Counted | None) -> float | None:
    if before is None or now.at <= before.at:
        return None
    return (now.closed - before.closed) / (now.at - before.at)


def _samples(metric: Collector) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in metric.collect():
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value
