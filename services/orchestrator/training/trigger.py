"""When to train: enough useful groups since the last run, or enough time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ratchet.logs.groups import DEFAULT_BASELINE, Baseline, are_level, teaches_nothing
from schemas.messages.reward import NOT_MENTIONED
from schemas.messages.training import AdapterTrained
from schemas.records.interaction import Interaction

WORST_SCORE = 0.0
KEPT_SCORERS = 16


@dataclass(frozen=True, slots=True)
class TrainingPolicy:
    """0 switches a trigger off. `baseline`: what is asked of the trainer; None leaves it its own choice."""

    after_groups: int
    every_s: float
    baseline: Baseline | None = None
    references_teach: bool = False
    replay_share: float = 0.0


@dataclass(slots=True)
class TrainingState:
    """State of one agent, as kept in the index. Times in seconds since the epoch."""

    groups: int = 0
    """Useful ones since the last request, scored as the newest were."""
    scorer: str = ""
    """Scorer of the newest group."""
    of_others: dict[str, int] = field(default_factory=dict)
    """Groups by each other scorer: they count again once it is the newest again, as a training sees it."""
    window_before: tuple[str, int] | None = None
    """A version that was trained elsewhere, and where the window began before it was."""
    since: int = 0
    """Byte of the log of interactions from which on no training has used it."""
    asked_since: int = 0
    """The same of the pending request: what it reads stays in the log until it is answered."""
    requested_at: float = 0.0
    """Time by the wall clock, for people; 0 where none was asked for yet."""
    requested_even_s: float | None = None
    """The same by `DeadlineClock.even`: what counts."""
    pending: str | None = None
    """The request that is not answered yet."""
    why: str = ""
    """The reason for the last request."""
    runs: int = 0

    def scored_by(self, scorer: str) -> None:
        """A training leaves out what another than the newest scorer scored."""
        if scorer == self.scorer:
            return
        if self.scorer:
            self.of_others[self.scorer] = self.groups
            self.groups = self.of_others.pop(scorer, 0)
        while len(self.of_others) > KEPT_SCORERS:
            del self.of_others[next(iter(self.of_others))]
        self.scorer = scorer


def scorer_of(line: Interaction) -> str:
    """Its name in a count."""
    one = line.scorer
    return " ".join((one.id, one.revision, one.rubric_sha256 or "")) if one else "unknown"


def shows(lines: Sequence[Interaction]) -> bool:
    """A group whose reference is known to be good, and which some answers fell short of."""
    reference = lines[0].reference_score
    return reference is not None and any(line.score is not None and line.score < reference for line in lines)


def teaches(lines: Sequence[Interaction], baseline: Baseline | None = None) -> bool:
    """A group in which some answers that the trainer may learn from score otherwise than those it compares them with:
    where nobody says otherwise, of programs those of the same one (record 0061).

    As the trainer's filters decide where no hyperparameter says otherwise, but for what takes the whole window to know.
    """
    some_scored = any(line.score is not None for line in lines)
    scored = [(_score_that_teaches(line), line.program) for line in lines if some_scored and _may_teach(line)]
    known = [(score, program) for score, program in scored if score is not None]
    scores, programs = [score for score, _ in known], [program for _, program in known]
    return not are_level(scores, programs, baseline or DEFAULT_BASELINE)


def _may_teach(line: Interaction) -> bool:
    """An answer that was cut and can't be scored does: being too long to judge is what it is to unlearn."""
    return teaches_nothing(line) is None and (line.score is None or line.finish_reason != "length")


def _score_that_teaches(line: Interaction) -> float | None:
    if line.score is None and line.score_status == "unscorable" and line.score_reason != NOT_MENTIONED:
        return WORST_SCORE
    return line.score


def uses_up(outcome: AdapterTrained) -> bool:
    """Tell whether its window is done with: trained on, or refused after it was held against the parent.

    Too few groups, or a fault of the machine, leave it to the next training, together with what comes in until then.
    """
    return outcome.status == "trained" or (outcome.status == "refused" and bool(outcome.metrics))


def due(state: TrainingState, policy: TrainingPolicy, waited_s: float) -> str | None:
    """Return why to train now, or None. `waited_s`: since the last request, infinite where there was none.

    Nothing is due while a request is open, or without anything new to learn from.
    """
    if state.pending is not None or state.groups == 0:
        return None
    if policy.after_groups and state.groups >= policy.after_groups:
        return f"{state.groups} new useful groups"
    if policy.every_s and waited_s >= policy.every_s:
        return f"{policy.every_s:g} s since the last run, {state.groups} new useful groups"
    return None
