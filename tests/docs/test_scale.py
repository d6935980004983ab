"""The page on scale calculates with the figures of the benchmarks, and calculates right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TOKENS, SAMPLES, TASKS, HOUR = 240, 8, 1_000_000, 3600


def _found(page: str, pattern: str) -> list[float]:
    found = re.search(pattern, (DOCS / page).read_text())
    assert found, f"{page} has nothing like {pattern}"
    return [float(figure.replace(",", "")) for figure in found.groups()]


@pytest.mark.parametrize(
    ("measured", "cores", "of_a_task", "derived"),
    [
        (r"\| the fleet, tasks/s \| ([\d,]+) \|", 2, 1, r"\| ([\d.]+) CPU-hours; [\d.]+ \|"),
        (r"\| the fleet, tasks/s \| [\d,]+ \| ([\d,]+) \|", 2, 1, r"\| [\d.]+ CPU-hours; ([\d.]+) \|"),
        (r"\| the fleet \| [\d.]+ \| ([\d.]+) \|", 1, TOKENS, r"answers of SmolLM2.*\| ([\d,]+) CPU-hours"),
        (r"\| vLLM 0.32 on the CPU \| [\d.]+ \| ([\d.]+) \|", 1, TOKENS, r"with vLLM.*\| ([\d,]+) CPU-hours"),
        (r"samples/s, the trainer's over TRL's \| × 5.5 \(([\d.]+) to", 1, SAMPLES, r"training on.*\| ([\d,]+) CPU-h"),
        (r"keys?, record on disk\), per second \| \d+ \| \d+ \| (\d+)", 2, SAMPLES, r"sandboxed.*\| ([\d,]+) CPU-h"),
    ],
)
def test_a_million_tasks_cost_what_the_benchmarks_say(measured: str, cores: int, of_a_task: int, derived: str) -> None:
    (per_second,) = _found("benchmarks.md", measured)
    (hours,) = _found("scale.md", derived)

    assert f"{per_second:,g}" in (DOCS / "scale.md").read_text()
    assert hours == pytest.approx(TASKS * of_a_task / per_second * cores / HOUR, rel=0.01)
