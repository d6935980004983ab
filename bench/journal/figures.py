"""What a contestant reached in a round, the medians over the rounds, and the table with the ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """`rate`: records/s appended, or MB read per CPU-second. `cost`: CPU microseconds per record, or MiB of memory."""

    contestant: str
    rate: float
    cost: float


def medians(rounds: Sequence[Figure]) -> list[Figure]:
    """One for each contestant, in the order of the first round."""
    names = dict.fromkeys(it.contestant for it in rounds)
    return [_median([it for it in rounds if it.contestant == name]) for name in names]


def _median(rounds: Sequence[Figure]) -> Figure:
    return Figure(rounds[0].contestant, median(it.rate for it in rounds), median(it.cost for it in rounds))


def table(figures: Sequence[Figure], rate: str, cost: str) -> str:
    """The ratio is to the first line's rate."""
    head = f"{'':42}{rate:>14}{'ratio':>9}{cost:>20}"
    lines = (f"{it.contestant:42}{it.rate:14,.0f}{it.rate / figures[0].rate:9.2f}{it.cost:20,.1f}" for it in figures)
    return "\n".join((head, *lines))
