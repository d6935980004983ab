"""Medians over the rounds, the table, and the bars the fleet is held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.pipeline.contestants import BARE, CONTESTANTS, FLEET
from bench.pipeline.load import Measured

AT_LEAST_OF_BARE = 0.6
AT_LEAST_TIMES_A_FRAMEWORK = 2.0


@dataclass(frozen=True, slots=True)
class Line:
    """One contestant at one size: medians over the rounds. CPU in milliseconds per task."""

    name: str
    size: int
    rounds: int
    tasks_per_s: float
    lowest: float
    highest: float
    cpu_ms: float
    cpu_ms_by_group: dict[str, float]
    missing: int

    @property
    def tasks_per_cpu_s(self) -> float:
        return 1000 / self.cpu_ms


def line(name: str, size: int, rounds: Sequence[Measured]) -> Line:
    rates = [round_.answered / round_.seconds for round_ in rounds]
    by_group = {
        group: median(1000 * round_.cpu_s[group] / round_.answered for round_ in rounds) for group in rounds[0].cpu_s
    }
    return Line(
        name=name,
        size=size,
        rounds=len(rounds),
        tasks_per_s=median(rates),
        lowest=min(rates),
        highest=max(rates),
        cpu_ms=median(1000 * sum(round_.cpu_s.values()) / round_.answered for round_ in rounds),
        cpu_ms_by_group=by_group,
        missing=sum(round_.missing for round_ in rounds),
    )


def table(lines: Sequence[Line]) -> str:
    """Two ratios: of tasks/s and of tasks per CPU-second, each over the bare echo's."""
    rows = [f"{'':18}{'tasks/s':>9}{'lowest':>8}{'highest':>8}{'of bare':>9}{'CPU ms/task':>13}{'workers':>9}"
            f"{'broker':>8}{'client':>8}{'per CPU, of bare':>18}{'lost':>6}"]  # fmt: skip
    bare = next((one for one in lines if one.name == BARE), None)
    for one in lines:
        cpu = one.cpu_ms_by_group
        rows.append(
            f"{one.name:18}{one.tasks_per_s:9.0f}{one.lowest:8.0f}{one.highest:8.0f}{_ratio(one, bare):>9}"
            f"{one.cpu_ms:13.2f}{cpu['workers']:9.2f}{cpu['broker']:8.2f}{cpu['client']:8.2f}"
            f"{_cpu_ratio(one, bare):>18}{one.missing:6}"
        )
    return "\n".join(rows)


def _ratio(one: Line, bare: Line | None) -> str:
    return f"{one.tasks_per_s / bare.tasks_per_s:.2f}" if bare else "-"


def _cpu_ratio(one: Line, bare: Line | None) -> str:
    return f"{bare.cpu_ms / one.cpu_ms:.2f}" if bare else "-"


def verdicts(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The bars, at one size: the fleet over the bare echo, and over each framework."""
    by_name = {one.name: one for one in lines}
    if FLEET not in by_name:
        return []
    fleet = by_name.pop(FLEET).tasks_per_s
    bars = {name: AT_LEAST_OF_BARE if name == BARE else AT_LEAST_TIMES_A_FRAMEWORK for name in by_name}
    return [
        {"over": name, "size": one.size, "ratio": fleet / one.tasks_per_s, "bar": bars[name],
         "met": fleet / one.tasks_per_s >= bars[name]}
        for name, one in by_name.items()
    ]  # fmt: skip


def notes() -> str:
    return "\n".join(f"  {contestant.name}: {contestant.note}" for contestant in CONTESTANTS)
