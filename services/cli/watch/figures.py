"""Makes the figures of `ratchet watch` of what services and broker say now, and said a while ago. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from rich.columns import Columns
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from services.cli.fleet.readiness import QueueDepth
from services.cli.terminal import number, table

Labels = tuple[tuple[str, str], ...]
Series = Mapping[tuple[str, Labels], float]
"""A sample's name and sorted labels, and its value; summed over the services that show it."""

RUNNING = "running"
MOST_ENDED = 8
"""Rollouts that ended which are shown."""
STAGES = ("queue", "generate", "score_queue", "score", "total")


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


NOTHING_YET = tuple(StageFigure(stage, 0, None, None) for stage in STAGES)


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
    """The way it ended."""


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
    """Return, of the items of the orchestrator's /v1/rollouts: all that run, and of those that ended the newest."""
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


def figures(
    now: Snapshot, before: Snapshot | None, glance: Any = None, rollouts: tuple[RolloutFigure, ...] = ()
) -> WatchFigures:
    """Return what is shown: counts since the services' start, queues and tokens a second since `before`.

    `glance` is what `/v1/status` says of tasks, stages and scores; None where it does not answer.
    """
    tasks = (glance or {}).get("tasks", {})
    return WatchFigures(
        tasks_per_s=tasks.get("per_s"),
        tokens_per_s=_rate("ratchet_agent_tokens_total", {}, now, before),
        open_tasks=tasks.get("open", 0),
        answered=tasks.get("answered", 0),
        failed=tasks.get("failed", 0) + tasks.get("expired", 0),
        retried=int(total(now.series, "ratchet_messages_total", outcome="retried")),
        dead_lettered=int(total(now.series, "ratchet_messages_total", outcome="dead_lettered")),
        queues=tuple(_queue(depth, now, before) for depth in now.depths),
        stages=tuple(StageFigure(**one) for one in glance["stages"]) if glance else NOTHING_YET,
        scores=tuple(
            ScoreFigure(one["agent_id"], one["adapter_version"], one["samples"], one["mean"])
            for one in (glance or {}).get("scores", ())
        ),
        rollouts=rollouts,
    )


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


AS_IT_SHOULD = (RUNNING, "finished", "cancelled")
STAGE_NAMES = {"queue": "waiting for the agent", "generate": "generating", "score_queue": "waiting for the scorer",
               "score": "scoring", "total": "admission to log"}  # fmt: skip


def seconds(value: float | None) -> str:
    """Write it in the unit a person would use: µs, ms or s."""
    if value is None:
        return "–"
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s"


def render_watch(figures: WatchFigures, trouble: tuple[str, ...]) -> Group:
    tables = [
        Panel(_queues(figures.queues), title="queues", title_align="left"),
        Panel(_stages(figures.stages), title="latencies", title_align="left"),
        Panel(_scores(figures.scores), title="scores", title_align="left"),
    ]
    if figures.rollouts:
        tables.append(Panel(_rollouts(figures.rollouts), title="rollouts", title_align="left"))
    faults = [Text(f"✘ {fault}", style="red") for fault in trouble]
    return Group(Text(plain_line(figures), style="bold"), Columns(tables), *faults)


def plain_line(figures: WatchFigures) -> str:
    total = figures.stages[-1]
    return (
        f"{number(figures.tasks_per_s, ',.1f')} tasks/s · {number(figures.tokens_per_s, ',.1f')} tokens/s · "
        f"{figures.open_tasks:,} open · "
        f"{figures.answered:,} answered · {figures.failed:,} failed · {figures.retried:,} retried · "
        f"{figures.dead_lettered:,} dead letters · p50 {seconds(total.p50)}, p95 {seconds(total.p95)}"
        f"{_running(figures.rollouts)}"
    )


def _running(rollouts: tuple[RolloutFigure, ...]) -> str:
    running = [one for one in rollouts if one.state == RUNNING]
    if not running:
        return ""
    calls, tokens = sum(one.calls for one in running), sum(one.tokens for one in running)
    return f" · {len(running):,} rollouts at {calls:,} calls and {tokens:,} tokens"


def _queues(queues: tuple[QueueFigure, ...]) -> Table:
    shown = table("queue", "waiting", "done/s", "consumers")
    for queue in queues:
        waiting = "–" if queue.waiting is None else f"{queue.waiting:,}"
        shown.add_row(queue.name, waiting, number(queue.per_s, ",.1f"), str(queue.consumers))
    return shown


def _stages(stages: tuple[StageFigure, ...]) -> Table:
    shown = table("stage", "tasks", "p50", "p95")
    for stage in stages:
        shown.add_row(STAGE_NAMES[stage.stage], f"{stage.count:,}", seconds(stage.p50), seconds(stage.p95))
    return shown


def _scores(scores: tuple[ScoreFigure, ...]) -> Table:
    shown = table("agent and version", "samples", "mean score")
    for score in scores:
        shown.add_row(f"{score.agent} {score.adapter_version}", f"{score.count:,}", f"{score.mean:.3f}")
    return shown


def _rollouts(rollouts: tuple[RolloutFigure, ...]) -> Group:
    """A table, and below it why those ended that did not by themselves."""
    shown = table("task and sample", "program", "state", "time", "calls", "tokens", left=3)
    for one in rollouts:
        name, took = f"{one.task_id} {one.sample}", seconds(one.seconds)
        shown.add_row(name, one.program, one.state, took, f"{one.calls:,}", f"{one.tokens:,}")
    why = [
        Text(f"{one.task_id} {one.sample} {one.state}: {one.says}", style="yellow")
        for one in rollouts
        if one.says and one.state not in AS_IT_SHOULD
    ]
    return Group(shown, *why)
