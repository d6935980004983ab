"""The protocol of a scorer strategy: one request in, one score per answer out. It knows no queue and no message.

A strategy batches as it needs: `score` is called concurrently, once per task that waits, so one that gains from batches
gathers the calls itself (`ratchet.models.batcher`), and a slow call never holds up other tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from schemas.messages.response import FinishReason, Usage
from schemas.messages.reward import SampleScore, ScorerIdentity
from schemas.messages.task import Prompt
from schemas.messages.workspace import Artifact, Workspace
from services.scorer.settings import ScorerSettings


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of an answer: tokens that the model sampled, and seconds that a program ran. None: not known."""

    tokens: int | None = None
    seconds: float | None = None


def spent_of(usage: Usage | None) -> Spent:
    """Return the cost that the answer's maker reported."""
    return Spent() if usage is None else Spent(usage.sampled_tokens, usage.seconds)


@dataclass(frozen=True, slots=True)
class Answer:
    """One sampled answer; `finish_reason` is `length` where it was cut at the token limit.

    `artifact` is what it left in the task's workspace. Two answers that differ only in what was `spent` are equal.
    """

    text: str
    finish_reason: FinishReason | None = None
    artifact: Artifact | None = field(default=None, hash=False)
    spent: Spent = field(default=Spent(), compare=False)


@dataclass(frozen=True, slots=True)
class ScoringRequest:
    """A task's prompt and the group of answers to it."""

    task_id: str
    prompt: Prompt
    answers: tuple[Answer, ...]
    reference: str | None = None
    criteria: str | None = None
    task_type: str | None = None
    workspace: Workspace | None = None
    fresh: bool = False
    """Each answer gets a verdict of its own, also where one equals another: of anchors that are scored again."""


class Strategy(Protocol):
    """Scores answers, from `start` to `stop`."""

    @property
    def identity(self) -> ScorerIdentity:
        """Final after `start`. Whatever changes the scores changes it."""

    async def start(self) -> None:
        """Load models, open connections. Raises ScorerError when that can't ever work."""

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        """One score per answer, in order. A failure is a null with its status and a reason, never 0."""

    async def stop(self) -> None:
        """Close what `start` opened."""

    def trouble(self) -> str | None:
        """Return why it can't score now, as a sentence; None if it can."""


class NothingToOpen:
    """The rest of `Strategy` for a strategy that needs no opening."""

    async def start(self) -> None:
        """Load nothing."""

    async def stop(self) -> None:
        """Close nothing."""

    def trouble(self) -> str | None:
        return None


@runtime_checkable
class OneByOne(Protocol):
    """A strategy that scores each answer by itself, so that a group may be given to it an answer at a time."""

    @property
    def one_by_one(self) -> bool:
        """False where the answers of a group are compared with each other after all."""


def scores_one_by_one(strategy: Strategy) -> bool:
    """One that does not say is taken to compare."""
    return isinstance(strategy, OneByOne) and strategy.one_by_one


@runtime_checkable
class GradesReferences(Protocol):
    """A strategy that can say whether a task's reference is itself an answer worth full marks."""

    @property
    def grades_references(self) -> bool:
        """False where references are no texts that a model could answer with, or a verdict on one costs money."""


def can_grade_references(strategy: Strategy) -> bool:
    """One that does not say is taken not to."""
    return isinstance(strategy, GradesReferences) and strategy.grades_references


class StrategyClass(Protocol):
    """A class that builds strategies. Registered under the entry points group `ratchet.scorers` it is a new scorer."""

    def build(self, argument: str, settings: ScorerSettings) -> Strategy:
        """A class method. `argument` follows the name in the specification: `exact` of `verifier:exact`, else empty.

        Raises ScorerError when the argument or a setting can't be used. Loads nothing large yet.
        """


class NotApplicable(SampleScore):
    """A null of a part that has nothing to say of an answer: in a sum the other parts share its weight."""


def no_score(count: int, reason: str) -> list[SampleScore]:
    """That many nulls for a task this strategy has no way to score."""
    return [SampleScore(score=None, status="unscorable", reason=reason)] * count


def failure(count: int, reason: str) -> list[SampleScore]:
    """That many nulls for a failure of ours or of a server: trying again may mend it."""
    return [SampleScore(score=None, status="infra_fail", reason=reason)] * count


def ran_out_of_time(count: int, reason: str) -> list[SampleScore]:
    """That many nulls for a scoring that took too long, or came too late."""
    return [SampleScore(score=None, status="timeout", reason=reason)] * count
