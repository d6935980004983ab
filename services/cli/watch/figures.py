"""From what services and broker say now, and said a while ago, to the figures `ratchet watch` shows. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ratchet.service.metrics import quantile
from services.cli.fleet.queue_depths import QueueDepth

Labels = tuple[tuple[str, str], ...]
Series = Mapping[tuple[str, Labels], float]
"""A sample's name and sorted labels, and its value; summed over the services that show it."""

RUNNING = "running"
MOST_ENDED = 8
"""Rollouts that ended which are shown."""
STAGES = ("queue", "generate", "score_queue", "score", "total")
CLOSED, OWN_CLOSED = "ratchet_tasks_closed_total", "ratchet_own_tasks_closed_total"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`at` is in seconds on any steady clock."""

    at: float
    depths: tuple[QueueDepth, ...]
    series: Series


@dataclass(frozen=True, slots=True)
class QueueFigure:
    """`per_s` is how many its consumers finished a second; None before there are two readings."""

    name: str
    waiting: int | None
    consumers: int
    per_s: float | None


@dataclass(frozen=True, slots=True)
class StageFigure:
    """Seconds; `count` tasks went through the stage."""

    stage: str
    count: int
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class ScoreFigure:
    agent: str
    adapter_version: str
    count: int
    mean: float


@dataclass(frozen=True, slots=True)
class RolloutFigure:
    """A program's rollout: `state` is running, or how it ended. `seconds` so far."""

    task_id: str
    sample: int
    program: str
    state: str
    seconds: float
    calls: int
    tokens: int
    says: str | None = None
    """How it ended."""


@dataclass(frozen=True, slots=True)
class WatchFigures:
    tasks_per_s: float | None
    tokens_per_s: float | None
    open_tasks: int
    answered: int
    failed: int
    retried: int
    dead_lettered: int
    queues: tuple[QueueFigure, ...]
    stages: tuple[StageFigure, ...]
    scores: tuple[ScoreFigure, ...]
    rollouts: tuple[RolloutFigure, ...] = ()


def rollouts_of(told: Iterable[Mapping[str, Any]]) -> tuple[RolloutFigure, ...]:
    """From the items of the orchestrator's /v1/rollouts: all that run, and of those that ended the newest."""
    found = [
        RolloutFigure(
            task_id=one["task_id"],
            sample=one["sample"],
            program=one["program"],
            state=one["state"],
            seconds=one["seconds"],
            calls=one["calls"],
            tokens=one["sampled_tokens"],
            says=one.get("says"),
        )
        for one in told
    ]
    ended = [one for one in found if one.state != RUNNING][-MOST_ENDED:]
    return (*ended, *(one for one in found if one.state == RUNNING))


def parse_series(texts: Iterable[str]) -> Series:
    """Prometheus texts of several services as one."""
    summed: dict[tuple[str, Labels], float] = defaultdict(float)
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith("ratchet_"):
                    summed[sample.name, tuple(sorted(sample.labels.items()))] += sample.value
    return summed


def figures(now: Snapshot, before: Snapshot | None, rollouts: tuple[RolloutFigure, ...] = ()) -> WatchFigures:
    """Rates and latencies are those since `before`; counts and scores since the services' start."""
    return WatchFigures(
        tasks_per_s=_less(_rate(CLOSED, {}, now, before), _rate(OWN_CLOSED, {}, now, before)),
        tokens_per_s=_rate("ratchet_agent_tokens_total", {}, now, before),
        open_tasks=int(total(now.series, "ratchet_open_tasks")),
        answered=_closed(now.series, "ok"),
        failed=sum(_closed(now.series, status) for status in ("failed", "expired")),
        retried=int(total(now.series, "ratchet_messages_total", outcome="retried")),
        dead_lettered=int(total(now.series, "ratchet_messages_total", outcome="dead_lettered")),
        queues=tuple(_queue(depth, now, before) for depth in now.depths),
        stages=tuple(_stage(stage, now.series, before.series if before else {}) for stage in STAGES),
        scores=tuple(_scores(now.series)),
        rollouts=rollouts,
    )


def _closed(series: Series, status: str) -> int:
    """Of the users' tasks."""
    return int(total(series, CLOSED, status=status) - total(series, OWN_CLOSED, status=status))


def _less(rate: float | None, own: float | None) -> float | None:
    return rate if rate is None or own is None else max(0.0, rate - own)


def total(series: Series, name: str, **labels: str) -> float:
    """The sum over all samples of that name with these labels, whatever others they have."""
    wanted = set(labels.items())
    return sum(value for (own, of), value in series.items() if own == name and wanted <= set(of))


def _rate(name: str, labels: Mapping[str, str], now: Snapshot, before: Snapshot | None) -> float | None:
    if before is None or now.at <= before.at:
        return None
    grown = total(now.series, name, **labels) - total(before.series, name, **labels)
    return max(0.0, grown) / (now.at - before.at)


def _queue(depth: QueueDepth, now: Snapshot, before: Snapshot | None) -> QueueFigure:
    per_s = _rate("ratchet_messages_total", {"queue": depth.name, "outcome": "acked"}, now, before)
    return QueueFigure(depth.name, depth.messages, depth.consumers, per_s)


def _stage(stage: str, now: Series, before: Series) -> StageFigure:
    """Of the tasks since `before`; of all where there was none since."""
    recent = _buckets(stage, now, before)
    used = recent if any(count > 0 for _, count in recent) else _buckets(stage, now, {})
    count = max((count for _, count in used), default=0)
    return StageFigure(stage, int(count), quantile(0.5, used), quantile(0.95, used))


def _buckets(stage: str, now: Series, before: Series) -> list[tuple[float, float]]:
    buckets: dict[float, float] = defaultdict(float)
    for (name, labels), value in now.items():
        named = dict(labels)
        if name == "ratchet_stage_seconds_bucket" and named.get("stage") == stage:
            buckets[float(named["le"])] += max(0.0, value - before.get((name, labels), 0.0))
    return sorted(buckets.items())


def _scores(series: Series) -> Iterable[ScoreFigure]:
    for (name, labels), count in sorted(series.items()):
        if name == "ratchet_sample_score_count" and count:
            mean = series.get(("ratchet_sample_score_sum", labels), 0.0) / count
            named = dict(labels)
            yield ScoreFigure(named.get("agent", "?"), named.get("adapter_version", "?"), int(count), mean)
