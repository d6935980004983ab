"""What the trainer leaves out of the log, and why. Pure: decides on one sample or one group, reads nothing.

Filters that need the whole window (which scorer is the newest, how noisy it is) are in selection.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, Self

ZERO_SPREAD = 1e-9


class Reason(StrEnum):
    """Why a line, a sample or a group teaches nothing; each value carries a sentence for people."""

    sentence: str

    def __new__(cls, value: str, sentence: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member

    BAD_LINE = "bad_line", "The line can't be read."
    OTHER_AGENT = "other_agent", "Another agent's."
    VALIDATION = "validation", "Traffic of the validation gate: golden tasks are never trained on."
    NO_SAMPLE = "no_sample", "The task ended without an answer."
    DUPLICATE = "duplicate", "The same task and sample were logged before."
    NULL_SCORE = "null_score", "The scorer gave no score."
    TRUNCATED = "truncated", "The answer was cut at its length limit."
    NO_TOKENS = "no_tokens", "Token ids or log-probabilities were not logged, or do not align."
    OTHER_VERSION = "other_version", "Answered by an adapter that is not the parent, nor close enough behind it."
    OTHER_WEIGHTS = "other_weights", "The adapter of that version had other weights then."
    OTHER_BASE = "other_base", "Another base model or tokenizer answered."
    FILTERED_SAMPLING = "filtered_sampling", "Sampled with temperature 0, top_p or top_k: not the policy's own choice."
    INCOMPLETE = "incomplete", "Samples of the group are missing from the window."
    TOO_FEW_SAMPLES = "too_few_samples", "Fewer usable samples than a comparison needs."
    ZERO_SPREAD = "zero_spread", "All scores are the same: nothing is better than anything."
    BELOW_NOISE = "below_noise", "The scores differ by less than the scorer's own noise."
    OTHER_SCORER = "other_scorer", "Scored by another scorer, revision or rubric than the newest."
    OTHER_TEMPERATURE = "other_temperature", "Sampled at another temperature than most."
    TOO_OLD = "too_old", "Older than the window."
    OVER_LIMIT = "over_limit", "Older than the newest groups that one run takes."


@dataclass(frozen=True, slots=True)
class DataPolicy:
    """Which groups may teach. `versions`: who may have answered, each with the sha256 of its weights where known."""

    agent_id: str
    versions: Mapping[str, str | None]
    base_revision: str | None = None
    min_samples: int = 2
    truncated: Literal["drop", "keep"] = "drop"
    score_noise: float = 0.0
    max_age_s: float | None = None
    max_groups: int = 4096


@dataclass(frozen=True, slots=True)
class LoggedSampleFacts:
    """What the filters need to know of one line. `position` is where the line starts in the log."""

    position: int
    score: float | None
    """The scorer's."""
    truncated: bool
    has_tokens: bool
    text: int
    """A hash of the answer: equal answers with unequal scores show the scorer's noise."""
    feedback: float | None = None
    """The application's score."""

    @property
    def taught(self) -> float | None:
        """The score to learn from: the application's where there is one."""
        return self.score if self.feedback is None else self.feedback


@dataclass(slots=True)
class LoggedGroup:
    """What the samples of one task by one adapter version have in common. `whole`: all of them were read."""

    version: str
    sha256: str | None
    engine: str | None
    scorer: int
    temperature: float
    filtered: bool
    size: int
    at: datetime
    whole: bool = False


def sample_reason(sample: LoggedSampleFacts, policy: DataPolicy) -> Reason | None:
    """Why this sample of a group is left out; the rest of its group may stay."""
    if sample.taught is None:
        return Reason.NULL_SCORE
    if sample.truncated and policy.truncated == "drop":
        return Reason.TRUNCATED
    return None if sample.has_tokens else Reason.NO_TOKENS


def group_reason(group: LoggedGroup, scores: Sequence[float], policy: DataPolicy) -> Reason | None:
    """Why the whole group is left out. `scores`: those of its usable samples."""
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
    return Reason.ZERO_SPREAD if max(scores) - min(scores) <= ZERO_SPREAD else None


def is_other_base(engine: str | None, revision: str | None) -> bool:
    """An engine that knows its model says `… name@<first 12 of the revision>`; of the others nothing can be said."""
    _, at, said = (engine or "").rpartition("@")
    return bool(at) and revision is not None and not revision.startswith(said)
