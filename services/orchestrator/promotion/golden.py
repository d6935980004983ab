"""The golden comparison: is a candidate fit for traffic, by how it answers fixed tasks beside its parent? Pure.

The candidate is an adapter, or a program, whose parent is the program that answers by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from ratchet.experiments.refusals import is_refusal
from ratchet.service.errors import NotJudged
from schemas.records.interaction import Interaction

LONGEST_GROWTH = 2.0
SHORTEST_SHRINK = 0.5
MORE_REFUSED = 0.1
MORE_UNSCORED = 0.1


@dataclass(frozen=True, slots=True)
class GoldenSummary:
    """Means over the answers of one version; shares are of its answers, from 0 to 1.

    `refused`: blank, or begun as refusals are. `unscored`: the scorer gave no score. `expired`: tasks that had no
    answer when the set's time was up.
    """

    tasks: int
    answered: int
    score: float | None
    unscored: float
    length: float
    refused: float
    expired: int = 0


@dataclass(frozen=True, slots=True)
class GoldenVerdict:
    passed: bool
    reason: str
    evidence: dict[str, object]


def summary(tasks: Sequence[Sequence[Interaction]]) -> GoldenSummary:
    """Of the logged lines of each golden task; none of one that was not asked in time."""
    answers = [line for lines in tasks for line in lines if line.sample is not None]
    scores = [line.score for line in answers if line.score is not None]
    return GoldenSummary(
        tasks=len(tasks),
        answered=sum(any(line.sample is not None for line in lines) for lines in tasks),
        score=fmean(scores) if scores else None,
        unscored=1.0 - len(scores) / len(answers) if answers else 1.0,
        length=fmean(_length(line) for line in answers) if answers else 0.0,
        refused=fmean(is_refusal(line.response or "") for line in answers) if answers else 1.0,
        expired=sum(all(line.status == "expired" for line in lines) for lines in tasks),
    )


def compare(
    candidate: GoldenSummary,
    parent: GoldenSummary,
    *,
    margin: float,
    shortest: float = SHORTEST_SHRINK,
    longest: float = LONGEST_GROWTH,
) -> GoldenVerdict:
    """Not worse in mean score by over `margin` (0 to 1), none unanswered, lengths within the factors, not evasive.

    Raises NotJudged where the parent, too, did not get through in time, or neither has a score.
    """
    if parent.expired:
        raise NotJudged(
            f"{parent.answered} of the {parent.tasks} golden tasks were answered by the parent, and "
            f"{candidate.answered} by the candidate, when their time was up (RATCHET_GOLDEN_DEADLINE_S): see that "
            f"agent and scorer work and their queues are short, or give them more time"
        )
    if candidate.score is None and parent.score is None:
        raise NotJudged(
            f"none of the {parent.tasks} golden tasks got a scored answer: see that agent and scorer work, and that "
            f"the scorer can score these tasks"
        )
    evidence: dict[str, object] = {"candidate": asdict(candidate), "parent": asdict(parent), "margin": margin}
    faults = _faults(candidate, parent, margin, shortest, longest)
    if faults:
        return GoldenVerdict(False, "; ".join(faults), evidence)
    reason = f"{_shown(candidate)}, its parent's {_shown(parent)}, on {candidate.tasks} golden tasks"
    return GoldenVerdict(True, reason, evidence)


def _faults(
    candidate: GoldenSummary, parent: GoldenSummary, margin: float, shortest: float, longest: float
) -> list[str]:
    faults: list[str] = []
    if candidate.answered < parent.answered:
        faults.append(f"it answered {candidate.answered} of {candidate.tasks} tasks, its parent {parent.answered}")
    if parent.score is not None and (candidate.score is None or candidate.score < parent.score - margin):
        faults.append(f"{_shown(candidate)}, more than {margin:g} below its parent's {parent.score:.3f}")
    if candidate.unscored > parent.unscored + MORE_UNSCORED:
        faults.append(f"{candidate.unscored:.0%} of its answers got no score, of its parent's {parent.unscored:.0%}")
    if parent.length and not shortest <= candidate.length / parent.length <= longest:
        faults.append(f"its answers are {candidate.length:.0f} long on average, its parent's {parent.length:.0f}")
    if candidate.refused > parent.refused + MORE_REFUSED:
        faults.append(f"it refused or was silent {candidate.refused:.0%} of the time, its parent {parent.refused:.0%}")
    return faults


def _shown(one: GoldenSummary) -> str:
    return "no score" if one.score is None else f"mean score {one.score:.3f}"


def _length(line: Interaction) -> float:
    """Tokens where they are logged, else characters."""
    tokens = line.sampled_tokens
    return float(len(line.response or "") if tokens is None else tokens)
