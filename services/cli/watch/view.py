"""The figures of `ratchet watch` as tables for a terminal, and as one line elsewhere. Pure."""

from __future__ import annotations

from rich.columns import Columns
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from services.cli.terminal import table
from services.cli.watch.figures import RUNNING, QueueFigure, RolloutFigure, ScoreFigure, StageFigure, WatchFigures

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


def rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


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
        f"{rate(figures.tasks_per_s)} tasks/s · {rate(figures.tokens_per_s)} tokens/s · {figures.open_tasks:,} open · "
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
        shown.add_row(queue.name, waiting, rate(queue.per_s), str(queue.consumers))
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
