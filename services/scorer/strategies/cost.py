"""Scores what an answer took, whatever it says: the tokens that the model sampled for it, or the seconds that it ran.

`tokens:4000` gives 1 for none, ½ for 4,000 and ⅓ for 8,000: the fewer the better, at any number. It is a part of a sum
or stands behind `and`, where only what is right earns it (spec.py, registry.py): an answer that gives up at once is
cheap. By the task's own figures, never by its group's: in an experiment both arms would then cost the same.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

from ratchet.service.errors import ScorerError
from schemas.messages.reward import SampleScore, ScorerIdentity
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import Answer, NothingToOpen, ScoringRequest

REVISION = "1"


class Cost(NothingToOpen):
    """`half`: what earns a half. An anchor that is scored again took nothing anew, and has it whole."""

    name: ClassVar[str]
    unit: ClassVar[str]
    one_by_one = True
    grades_references = True
    """One that took nothing has it whole."""

    def __init__(self, half: float) -> None:
        self._half = half
        self._identity = ScorerIdentity(id=f"{self.name}:{half:g}", revision=REVISION)

    @classmethod
    def build(cls, argument: str, settings: ScorerSettings) -> Self:
        try:
            half = float(argument)
        except ValueError:
            half = math.nan
        if not 0 < half < math.inf:
            raise ScorerError(f"`{cls.name}` needs the {cls.unit} that earn a half, but was given {argument!r}")
        return cls(half)

    @property
    def identity(self) -> ScorerIdentity:
        return self._identity

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        return [self._score_answer(answer, again=request.fresh) for answer in request.answers]

    def _score_answer(self, answer: Answer, *, again: bool) -> SampleScore:
        taken = self.cost_of(answer)
        if again:
            return SampleScore(score=1.0, reason="scored again: what it took is not")
        if taken is None:
            return SampleScore(score=None, status="unscorable", reason=f"nobody said how many {self.unit} it took")
        return SampleScore(score=self._half / (self._half + taken), reason=f"{taken:,.6g} {self.unit}")

    def cost_of(self, answer: Answer) -> float | None:
        raise NotImplementedError


class Tokens(Cost):
    name = "tokens"
    unit = "tokens"

    def cost_of(self, answer: Answer) -> float | None:
        return answer.spent.tokens


class Time(Cost):
    """Wall-clock: it moves with what else the machine does, so give it little weight."""

    name = "time"
    unit = "seconds"

    def cost_of(self, answer: Answer) -> float | None:
        return answer.spent.seconds
