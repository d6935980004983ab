"""The filters: what the trainer leaves out of the log, and why. Pure: they see one sample or one group, read nothing.

Filters that need the whole window (which scorer is the newest, how noisy it is) are in selection.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ratchet.logs.groups import Baseline, are_level, peers
from ratchet.logs.rows import ReferenceRow
from schemas.messages.base import Sentences
from schemas.records.demonstration import DemonstrationSource

WORST_SCORE = 0.0


class Reason(Sentences):
    """The reasons why a line, a sample or a group teaches nothing; each value carries a sentence for people."""

    BAD_LINE = "bad_line", "The line can't be read."
    ERASED = "erased", "The line was erased."
    STRANGE = "strange", "The orchestrator did not note that it wrote the line."
    OTHER_AGENT = "other_agent", "Another agent's."
    VALIDATION = "validation", "Traffic of the validation gate: what it asks is never trained on."
    EVALUATION = "evaluation", "Asks what a registered evaluation set asks: no training ever sees it."
    REPLAY = "replay", "Its prompt is kept for the shadow replay of candidates: no training sees it."
    NO_SAMPLE = "no_sample", "The task ended without an answer."
    OTHER_TENANT = "other_tenant", "Of a tenant that its agent does not learn from, or kept apart by its asker."
    NOT_RESEARCH = "not_research", "Not of the research agent, and of its tenant, that the version is trained for."
    CANCELLED = "cancelled", "Its task was cancelled."
    FIRST_PASSING = "first_passing", "Asked for the first that passes: which answers were made depends on their scores."
    DUPLICATE = "duplicate", "The same task and sample were logged before."
    NULL_SCORE = "null_score", "The scorer gave no score, by a failure of ours or for all answers to the task."
    TRUNCATED = "truncated", "The answer was cut at its length limit."
    NO_TOKENS = "no_tokens", "Token ids or log-probabilities were not logged, or do not align."
    NOT_CALLED = "not_called", "The program did not call the role that is trained."
    NO_TRAJECTORY = "no_trajectory", "Its conversation lies in a file of its own, which is missing."
    BAD_TRAJECTORY = "bad_trajectory", "Its conversation lies in a file of its own, which is damaged."
    LOST = "lost", "The rollout was lost by a failure of ours, or called off."
    OTHER_VERSION = (
        "other_version",
        "Answered by an adapter that is not the parent, a candidate made from it, nor close enough behind.",
    )
    TOO_DIFFERENT = "too_different", "The parent is too different a policy from the version that answered."
    OTHER_WEIGHTS = "other_weights", "The adapter of that version had other weights then."
    OTHER_BASE = "other_base", "Another base model or tokenizer answered."
    FILTERED_SAMPLING = "filtered_sampling", "Sampled with temperature 0, top_p or top_k: not the policy's own choice."
    ALONE = "alone", "No other usable sample of its group is by the same program: nothing to compare it with."
    INCOMPLETE = "incomplete", "Samples of the group are missing from the window."
    TOO_FEW_SAMPLES = "too_few_samples", "Fewer usable samples than a comparison needs."
    ZERO_SPREAD = "zero_spread", "All scores are the same: nothing is better than anything."
    BELOW_NOISE = "below_noise", "The scores differ by less than the scorer's own noise."
    OTHER_SCORER = "other_scorer", "Scored by another scorer, revision or rubric than the newest."
    OTHER_TEMPERATURE = "other_temperature", "Sampled at another temperature than most."
    TOO_OLD = "too_old", "Older than the window."
    HELD_OUT = "held_out", "Not taught: it says while the training runs whether that is of use."
    DEMONSTRATED = "demonstrated", "Texts that are known to be good teach in their place."
    OVER_LIMIT = "over_limit", "Older than the newest groups that one run takes."


@dataclass(frozen=True, slots=True)
class DataPolicy:
    """The groups that may teach. `versions`: who may have answered, each with the sha256 of its weights where known.

    `needs_spread`: the learner compares answers, so that equal scores teach it nothing.
    """

    agent_id: str
    versions: Mapping[str, str | None]
    base_revision: str | None = None
    min_samples: int = 2
    needs_spread: bool = True
    baseline: Baseline = "group"
    """The samples that one is compared with, where the learner compares."""
    truncated: Literal["drop", "keep"] = "drop"
    unscorable: Literal["worst", "drop"] = "worst"
    score_noise: float = 0.0
    held_out: frozenset[str] = frozenset()
    """The sums of inputs that are kept for evaluation (ratchet/adapters/evaluations.py)."""
    max_age_s: float | None = None
    max_groups: int = 4096
    sources: frozenset[DemonstrationSource] = frozenset()
    """The sources of demonstrations that teach."""
    replay_share: float = 0.0
    """The share of the prompts that are kept for the shadow replay (ratchet/adapters/taught_logs.py)."""
    research: tuple[str, str] | None = None
    """The registered agent whose tasks alone teach, and the tenant whose tasks they are."""


@dataclass(frozen=True, slots=True)
class LoggedSampleFacts:
    """The facts of one line that the filters need. `position` is where the line starts in the log."""

    position: int
    score: float | None
    """The scorer's."""
    truncated: bool
    has_tokens: bool
    text: int
    """A hash of the answer: equal answers with unequal scores show the scorer's noise."""
    feedback: float | None = None
    """The application's score."""
    lost: bool = False
    """The agent says that a failure of ours ended it, or that it was called off."""
    trajectory: ReferenceRow | None = None
    """The place of its tokens, if they are not in the line."""
    unscorable: bool = False
    """The scorer says that this answer can't be scored; neither a failure of ours nor an answer it says nothing of."""
    program: str | None = None
    """The program that made it; None where the model was asked itself."""
    called: bool = True
    """The role that is trained sampled something in it."""

    @property
    def given(self) -> float | None:
        """The application's score where there is one, else the scorer's."""
        return self.score if self.feedback is None else self.feedback


@dataclass(slots=True)
class LoggedGroup:
    """The facts that the samples of one task by one adapter version have in common. `whole`: all of them were read."""

    version: str
    sha256: str | None
    engine: str | None
    scorer: int
    temperature: float
    filtered: bool
    size: int
    at: datetime
    prompt: int = 0
    """The key of the prompt's words (ratchet/adapters/taught_logs.py)."""
    role: str | None = None
    whole: bool = False


def taught_scores(samples: Sequence[LoggedSampleFacts], policy: DataPolicy) -> list[float | None]:
    """The score to learn from, for each sample of one group; None for one that can't teach.

    An answer that can't be scored beside answers that were has the worst score there is: left out, it would cost its
    writer nothing. Where no answer of the group has a score, it may be the task that can't be scored, and all are None.
    """
    worst = WORST_SCORE if policy.unscorable == "worst" and any(one.given is not None for one in samples) else None
    return [worst if one.given is None and one.unscorable and not one.lost else one.given for one in samples]


def sample_reason(sample: LoggedSampleFacts, taught: float | None, policy: DataPolicy) -> Reason | None:
    """Return why this sample of a group is left out; the rest of its group may stay.

    An answer that was cut and can't be scored stays: being too long to judge is what it is to unlearn.
    """
    if sample.lost:
        return Reason.LOST
    if not sample.called:
        return Reason.NOT_CALLED
    if taught is None:
        return Reason.NULL_SCORE
    if sample.truncated and sample.given is not None and policy.truncated == "drop":
        return Reason.TRUNCATED
    return None if sample.has_tokens else Reason.NO_TOKENS


def with_alone(
    samples: Sequence[LoggedSampleFacts], reasons: Sequence[Reason | None], policy: DataPolicy
) -> list[Reason | None]:
    """The reasons, and one for each usable sample that would be compared with itself alone.

    The whole group in place of its program would make the programs' difference its advantage.
    """
    found = list(reasons)
    if policy.needs_spread and policy.baseline == "program":
        usable = [number for number, reason in enumerate(reasons) if reason is None]
        sets = peers([samples[number].program for number in usable], policy.baseline)
        if len(sets) > 1:
            for alone in (one for one in sets if len(one) == 1):
                found[usable[alone[0]]] = Reason.ALONE
    return found


def group_reason(
    group: LoggedGroup, scores: Sequence[float], programs: Sequence[str | None], policy: DataPolicy
) -> Reason | None:
    """Return why the whole group is left out. `scores` and `programs`: those of its usable samples."""
    if group.version not in policy.versions:
        return Reason.OTHER_VERSION
    known = policy.versions[group.version]
    if known is not None and group.sha256 is not None and group.sha256 != known:
        return Reason.OTHER_WEIGHTS
    if is_other_base(group.engine, policy.base_revision):
        return Reason.OTHER_BASE
    if group.filtered:
        return Reason.FILTERED_SAMPLING
    if not group.whole:
        return Reason.INCOMPLETE
    if len(scores) < policy.min_samples:
        return Reason.TOO_FEW_SAMPLES
    return Reason.ZERO_SPREAD if policy.needs_spread and are_level(scores, programs, policy.baseline) else None


def is_other_base(engine: str | None, revision: str | None) -> bool:
    """An engine that knows its model says `… name@<first 12 of the revision>`; of the others nothing can be said."""
    _, at, said = (engine or "").rpartition("@")
    return bool(at) and revision is not None and not revision.startswith(said)
