"""What the answers to held-out tasks come to: scores, how right they are, latencies, what was lost. Pure.

How right an answer is, is checked against the known one here only: nobody in the fleet ever sees it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from ratchet.logs.best_answer import best as best_of
from ratchet.logs.groups import grouped
from ratchet.logs.rows import AnswerRow

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


def report_held_out(
    answers: Mapping[str, str],
    answered: Mapping[str, str],
    rows: Sequence[AnswerRow],
    *,
    seconds: float,
    dead_letters: int,
) -> HeldOutReport:
    """By task id `answers` has the right one, `answered` the Result's status; `rows` are the log's lines of them."""
    groups = _groups(rows, answers)
    samples = [row for group in groups.values() for row in group]
    scores = [row.score for row in samples if row.score is not None]
    first = {task: group[0] for task, group in groups.items()}
    best = {task: best_of(group) for task, group in groups.items()}
    return HeldOutReport(
        tasks=len(answers),
        answered=len(answered),
        lost=len(answers) - len(answered),
        failed=sum(status != "ok" for status in answered.values()),
        samples=len(samples),
        logged_twice=sum(count - 1 for count in _copies(rows).values()),
        dead_letters=dead_letters,
        unscored=len(samples) - len(scores),
        seconds=seconds,
        tokens=sum(len(row.completion_ids or ()) for row in samples),
        histogram=histogram(scores),
        first=_choice(first, answers),
        best=_choice(best, answers),
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


def _groups(rows: Sequence[AnswerRow], answers: Mapping[str, str]) -> dict[str, list[AnswerRow]]:
    """The samples of each task, in their order, each once."""
    samples = (row for row in rows if row.task_id in answers and row.sample is not None)
    groups: dict[str, list[AnswerRow]] = {}
    for group in grouped(samples, incomplete=True):
        groups.setdefault(group[0].task_id, group)
    return groups


def _copies(rows: Sequence[AnswerRow]) -> Counter[tuple[str, int | None]]:
    return Counter((row.task_id, row.sample) for row in rows)


def is_right(row: AnswerRow, answer: str) -> bool:
    return (row.response or "").strip() == answer


def _choice(chosen: Mapping[str, AnswerRow], answers: Mapping[str, str]) -> Choice:
    scores = [row.score for row in chosen.values() if row.score is not None]
    return Choice(
        fmean(scores) if scores else None, _share(is_right(row, answers[row.task_id]) for row in chosen.values())
    )


def _share(truths: Any) -> float:
    values = list(truths)
    return sum(values) / len(values) if values else 0.0


def _latencies(firsts: Sequence[AnswerRow]) -> tuple[StageLatency, ...]:
    found = []
    for stage in STAGES:
        values = [row.latencies[stage] for row in firsts]
        found.append(StageLatency(stage, percentile(values, 0.5), percentile(values, 0.95), max(values, default=0.0)))
    return tuple(found)
