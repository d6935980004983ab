"""The golden comparison: is a candidate fit for traffic, by how it answers fixed tasks beside its parent? Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from schemas.interaction import Interaction

LONGEST_GROWTH = 2.0
SHORTEST_SHRINK = 0.5
MORE_EMPTY = 0.1


@dataclass(frozen=True, slots=True)
class GoldenSummary:
    """Means over the answers of one version. `empty` is the share of answers that are blank: refusals to answer."""

    tasks: int
    answered: int
    score: float | None
    length: float
    empty: float


@dataclass(frozen=True, slots=True)
class GoldenVerdict:
    passed: bool
    reason: str
    evidence: dict[str, object]


def summary(tasks: Sequence[Sequence[Interaction]]) -> GoldenSummary:
    """Of the logged lines of each golden task."""
    answers = [line for lines in tasks for line in lines if line.sample is not None]
    scores = [line.score for line in answers if line.score is not None]
    return GoldenSummary(
        tasks=len(tasks),
        answered=sum(any(line.sample is not None for line in lines) for lines in tasks),
        score=fmean(scores) if scores else None,
        length=fmean(_length(line) for line in answers) if answers else 0.0,
        empty=fmean(not (line.response or "").strip() for line in answers) if answers else 1.0,
    )


def compare(candidate: GoldenSummary, parent: GoldenSummary, *, margin: float) -> GoldenVerdict:
    """Not worse in mean score by over `margin` (0 to 1), none unanswered, lengths within a factor of 2, not evasive."""
    evidence: dict[str, object] = {"candidate": asdict(candidate), "parent": asdict(parent), "margin": margin}
    faults = _faults(candidate, parent, margin)
    if faults:
        return GoldenVerdict(False, "; ".join(faults), evidence)
    shown = "no scores to compare" if candidate.score is None else f"mean score {candidate.score:.3f}"
    against = "" if parent.score is None else f", its parent's {parent.score:.3f}"
    return GoldenVerdict(True, f"{shown}{against}, on {candidate.tasks} golden tasks", evidence)


def _faults(candidate: GoldenSummary, parent: GoldenSummary, margin: float) -> list[str]:
    faults: list[str] = []
    if candidate.answered < parent.answered:
        faults.append(f"it answered {candidate.answered} of {candidate.tasks} tasks, its parent {parent.answered}")
    if parent.score is not None and (candidate.score is None or candidate.score < parent.score - margin):
        shown = "no score" if candidate.score is None else f"mean score {candidate.score:.3f}"
        faults.append(f"{shown}, more than {margin:g} below its parent's {parent.score:.3f}")
    if parent.length and not SHORTEST_SHRINK <= candidate.length / parent.length <= LONGEST_GROWTH:
        faults.append(f"its answers are {candidate.length:.0f} long on average, its parent's {parent.length:.0f}")
    if candidate.empty > parent.empty + MORE_EMPTY:
        faults.append(f"{candidate.empty:.0%} of its answers are empty, of its parent's {parent.empty:.0%}")
    return faults


def _length(line: Interaction) -> float:
    """Tokens where they are logged, else characters."""
    return float(len(line.response or "") if line.completion_ids is None else len(line.completion_ids))
