"""The findings of the cells, as lines and as tables: the share of exactly right answers, with 95 % intervals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.learning.table import interval, student
from bench.own.cells import METHODS, Cell
from bench.own.families import FAMILIES

Found = tuple[Cell, Mapping[str, Any]]


def cell_line(cell: Cell, found: Mapping[str, Any]) -> str:
    """The mean over the held-out tasks; the interval is that of the tasks, for this one training."""
    mean, half = interval(found["shares"])
    doubtful = found.get("counts", {}).get("demonstrations.doubtful", 0)
    line = f"{cell.name:56}{mean:8.3f} ± {half:.3f}{found['seconds']:9.0f} CPU-s  {found.get('status', '')}"
    return f"{line}  {doubtful} references look wrong" if doubtful else line


def print_tables(found: Sequence[Found]) -> None:
    """One for each number of tasks and share of wrong references: a line a method, a column a family."""
    for size, wrong in sorted({(cell.size, cell.wrong) for cell, _ in found}):
        rows = [one for one in found if (one[0].size, one[0].wrong) == (size, wrong)]
        print(f"\n{size} tasks, {wrong} % of the references wrong: share exactly right, CPU-seconds of a training")
        print(f"{'':24}" + "".join(f"{name:>11}" for name in FAMILIES) + f"{'mean':>18}{'CPU-s':>8}{'seeds':>7}")
        for method in METHODS:
            if own := [one for one in rows if one[0].method == method]:
                print(_row(method, own))


def _row(method: str, own: Sequence[Found]) -> str:
    cells = {
        name: [statistics.fmean(found["shares"]) for cell, found in own if cell.family == name] for name in FAMILIES
    }
    columns = "".join(f"{statistics.fmean(means):>11.3f}" if means else f"{'':>11}" for means in cells.values())
    mean, half = mean_over_families(own)
    seconds = statistics.fmean(found["seconds"] + found["answer_seconds"] for _, found in own)
    seeds = len({cell.seed for cell, _ in own})
    return f"{method:24}{columns}{f'{mean:.3f} ± {half:.3f}':>18}{seconds:>8.0f}{seeds:>7}"


def mean_over_families(own: Sequence[Found]) -> tuple[float, float]:
    """The mean of the families' means, and half of its 95 % interval.

    Where each family has several seeds, the interval is over trainings: their deviation within the families, pooled.
    With one seed it is over the held-out tasks, and says nothing of another training.
    """
    families = {cell.family for cell, _ in own}
    trainings = [[found["shares"] for cell, found in own if cell.family == name] for name in sorted(families)]
    repeated = all(len(shares) > 1 for shares in trainings)
    values = [
        [statistics.fmean(one) for one in shares] if repeated else [share for one in shares for share in one]
        for shares in trainings
    ]
    error = sum(statistics.variance(one) / len(one) for one in values) ** 0.5 / len(values)
    freedom = sum(len(one) - 1 for one in values)
    return statistics.fmean(map(statistics.fmean, values)), student(freedom) * error
