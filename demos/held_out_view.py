"""The report on held-out tasks as tables. Pure."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from demos.held_out_report import Choice, HeldOutReport
from services.cli.terminal import table
from services.cli.watch.view import seconds

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
        _latencies(report),
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


def _latencies(report: HeldOutReport) -> Table:
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


def counts_table(*rows: tuple[str, int, int | None]) -> Table:
    """What was counted, the count, and what it should be, where that is known."""
    shown = Table(box=None, show_header=False, pad_edge=False)
    shown.add_column()
    shown.add_column(justify="right")
    for name, count, wanted in rows:
        shown.add_row(name, Text(f"{count:,}", style="red" if wanted not in (None, count) else ""))
    return shown
