"""The report on the base model's answers to held-out tasks: scores, right answers, latencies, what was lost. Pure.

An answer is checked against the known one here only: nobody in the fleet ever sees it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from demos.books import Measured
from demos.story_view import counts_table
from demos.toy.sort_task import SortTask
from ratchet.logs.best_answer import best as best_of
from ratchet.logs.groups import group_by_task
from ratchet.logs.rows import AnswerRow
from services.cli.terminal import table
from services.cli.watch.figures import seconds

BINS = 10
STAGES = ("queue_s", "generate_s", "score_queue_s", "score_s", "total_s")


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer per task, chosen in some way: their mean score, and the share of them that is right."""

    mean_score: float | None
    right: float


@dataclass(frozen=True, slots=True)
class StageLatency:
    """Seconds, over the tasks."""

    stage: str
    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class HeldOutReport:
    """`lost`: tasks without an answer. `logged_twice`: samples with two lines. `histogram`: by tenth of score."""

    tasks: int
    answered: int
    lost: int
    failed: int
    samples: int
    logged_twice: int
    dead_letters: int
    unscored: int
    seconds: float
    tokens: int
    histogram: tuple[int, ...]
    first: Choice
    best: Choice
    chance: float
    latencies: tuple[StageLatency, ...]

    @property
    def sound(self) -> bool:
        return not (self.lost or self.failed or self.logged_twice or self.dead_letters)

    def as_dict(self) -> dict[str, Any]:
        return {"sound": self.sound, **asdict(self)}


def report_held_out(measured: Measured[SortTask]) -> HeldOutReport:
    """Return the report on what was measured."""
    answers = {name: task.answer for name, task in measured.tasks.items()}
    groups = _groups(measured)
    samples = [row for group in groups.values() for row in group]
    scores = [row.score for row in samples if row.score is not None]
    books = measured.account
    return HeldOutReport(
        tasks=books.asked,
        answered=len(measured.answered),
        lost=books.lost,
        failed=books.failed,
        samples=len(samples),
        logged_twice=books.logged_twice,
        dead_letters=measured.dead_letters,
        unscored=len(samples) - len(scores),
        seconds=measured.seconds,
        tokens=sum(len(row.completion_ids or ()) for row in samples),
        histogram=histogram(scores),
        first=_choice([group[0] for group in groups.values()], answers),
        best=_choice([best_of(group) for group in groups.values()], answers),
        chance=_share(is_right(row, answers[row.task_id]) for row in samples),
        latencies=_latencies([group[0] for group in groups.values()]),
    )


def histogram(scores: Sequence[float], bins: int = BINS) -> tuple[int, ...]:
    """Counts by equal parts of [0, 1]; 1 belongs to the last."""
    counts = Counter(min(int(score * bins), bins - 1) for score in scores)
    return tuple(counts[part] for part in range(bins))


def percentile(values: Sequence[float], q: float) -> float:
    """The nearest-rank percentile; 0 for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0


def _groups(measured: Measured[SortTask]) -> dict[str, list[AnswerRow]]:
    """Return the samples of each task, in their order, each once."""
    groups: dict[str, list[AnswerRow]] = {}
    for group in group_by_task((row for _, row in measured.samples()), incomplete=True):
        groups.setdefault(group[0].task_id, group)
    return groups


def is_right(row: AnswerRow, answer: str) -> bool:
    return (row.response or "").strip() == answer


def _choice(chosen: Sequence[AnswerRow], answers: Mapping[str, str]) -> Choice:
    scores = [row.score for row in chosen if row.score is not None]
    right = _share(is_right(row, answers[row.task_id]) for row in chosen)
    return Choice(fmean(scores) if scores else None, right)


def _share(truths: Any) -> float:
    values = list(truths)
    return sum(values) / len(values) if values else 0.0


def _latencies(firsts: Sequence[AnswerRow]) -> tuple[StageLatency, ...]:
    found = []
    for stage in STAGES:
        values = [row.latencies[stage] for row in firsts]
        found.append(StageLatency(stage, percentile(values, 0.5), percentile(values, 0.95), max(values, default=0.0)))
    return tuple(found)


BAR = 40
STAGE_NAMES = {
    "queue_s": "waiting for the agent",
    "generate_s": "generating",
    "score_queue_s": "waiting for the scorer",
    "score_s": "scoring",
    "total_s": "admission to log",
}


def render_held_out(report: HeldOutReport, log: Path) -> Group:
    return Group(
        _headline(report),
        Text("\nScores of all samples, given by the bigger model", style="bold"),
        _histogram(report),
        Text("\nWhat the user gets", style="bold"),
        _choices(report),
        Text("\nLatencies by stage", style="bold"),
        _latency_table(report),
        Text("\nThe ledger", style="bold"),
        _ledger(report),
        Text(f"\nEvery sample with its score lies in {log}"),
    )


def _headline(report: HeldOutReport) -> Text:
    tasks_s, samples_s, tokens_s = (n / report.seconds for n in (report.answered, report.samples, report.tokens))
    return Text(
        f"{report.answered} of {report.tasks} tasks the models never saw, answered in {report.seconds:.1f} s: "
        f"{tasks_s:.1f} tasks/s, {samples_s:.0f} samples/s, {tokens_s:,.0f} tokens/s",
        style="bold green" if report.sound else "bold red",
    )


def _histogram(report: HeldOutReport) -> Table:
    shown = table("score", "samples")
    shown.add_column("")
    most = max(report.histogram, default=0) or 1
    for part, count in enumerate(report.histogram):
        low = part / len(report.histogram)
        shown.add_row(f"{low:.1f}–{low + 1 / len(report.histogram):.1f}", str(count), "█" * round(BAR * count / most))
    return shown


def _choices(report: HeldOutReport) -> Table:
    shown = table("answer", "mean score", "right (checked against the known answer)")
    group = round(report.samples / report.answered) if report.answered else 0
    shown.add_row("the first sample", *_cells(report.first))
    shown.add_row(f"the best-scored of {group}", *_cells(report.best))
    return shown


def _cells(choice: Choice) -> tuple[str, str]:
    return ("–" if choice.mean_score is None else f"{choice.mean_score:.3f}", f"{choice.right:.0%}")


def _latency_table(report: HeldOutReport) -> Table:
    shown = table("stage", "p50", "p95", "max")
    for latency in report.latencies:
        cells = (seconds(latency.p50), seconds(latency.p95), seconds(latency.max))
        shown.add_row(STAGE_NAMES[latency.stage], *cells)
    return shown


def _ledger(report: HeldOutReport) -> Table:
    return counts_table(
        ("tasks submitted", report.tasks, None),
        ("tasks answered", report.answered, report.tasks),
        ("tasks lost", report.lost, 0),
        ("tasks failed", report.failed, 0),
        ("samples logged", report.samples, None),
        ("samples logged twice", report.logged_twice, 0),
        ("samples without a score", report.unscored, None),
        ("dead letters", report.dead_letters, 0),
    )
