"""What a training run left beside its adapter: the card, and the curves of its losses and rewards.

Read leniently: a file or a field that is missing, too large, or of another shape, leaves out what it would have shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from ratchet.adapters.folder import read_file
from ratchet.adapters.limits import LARGEST_REPORT
from ratchet.adapters.manifest import TRAINING_REPORT, read_card
from ratchet.service.errors import AdapterError
from schemas.records.adapter_card import AdapterCard
from schemas.records.registry import AdapterEntry

MOST_STEPS = 3000
"""In a report that is written; of a longer run, so many of its steps."""
MOST_COUNTS = 64
LONGEST_NAME = 100
Point = tuple[float, float]
T = TypeVar("T")
LARGEST = 1e300
"""Above it, infinity included, is nothing that can be drawn."""
CURVES = (
    *("loss", "entropy", "effective_share", "clip_fraction", "kl", "reward", "divergence", "good_log_ratio"),
    *("demonstration_loss", "held_out_loss"),
)


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """`curves`: name → (step, value), without those that are zero all along. `counts`: the data used, and dropped."""

    version: str
    card: AdapterCard | None
    curves: dict[str, list[Point]]
    counts: dict[str, float]


def training_reports(adapters_dir: Path, entries: Iterable[AdapterEntry]) -> list[TrainingReport]:
    """Of the versions whose folders are still there."""
    return [training_report(adapters_dir / entry.folder, entry.version) for entry in entries if entry.folder]


def training_report(folder: Path, version: str) -> TrainingReport:
    report = _read(folder)
    steps = report.get("steps")
    rows = [row for row in steps if isinstance(row, dict)] if isinstance(steps, list) else []
    curves = {name: thinned(_curve(rows, name)) for name in CURVES}
    counts = _counts(report)
    return TrainingReport(
        version,
        _card(folder),
        {name: points for name, points in curves.items() if any(value for _, value in points)},
        {str(name)[:LONGEST_NAME]: value for name, value in islice(counts.items(), MOST_COUNTS) if is_number(value)},
    )


def _counts(report: dict[str, Any]) -> dict[Any, Any]:
    data = report.get("data")
    counts = data.get("counts") if isinstance(data, dict) else report.get("counts")
    return counts if isinstance(counts, dict) else {}


def _read(folder: Path) -> dict[str, Any]:
    try:
        report = json.loads(read_file(folder, TRAINING_REPORT, LARGEST_REPORT))
    except (AdapterError, OSError, ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}


def _card(folder: Path) -> AdapterCard | None:
    try:
        return read_card(folder)
    except AdapterError:
        return None


def _curve(rows: list[dict[str, Any]], name: str) -> list[Point]:
    numbered: Iterable[tuple[Any, Any]] = ((row.get("step", index), row.get(name)) for index, row in enumerate(rows, 1))
    return [(float(step), float(value)) for step, value in numbered if is_number(step) and is_number(value)]


def thinned(points: Sequence[T], most: int = 300) -> list[T]:
    """At most so many, evenly, the last one always among them."""
    if len(points) <= most:
        return list(points)
    return [points[round(index * (len(points) - 1) / (most - 1))] for index in range(most)]


def is_number(value: Any) -> bool:
    """That can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
