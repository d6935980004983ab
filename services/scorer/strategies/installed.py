"""Builds what a specification names, by the entry points `ratchet.scorers`: a strategy, a sum, or two in turn."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace

from ratchet.bus.in_hand import NEVER, Stepwise
from ratchet.service.entry_points import EntryPoints
from ratchet.service.errors import ScorerError
from schemas.messages.reward import SampleScore, ScorerIdentity, ScoreStatus
from services.scorer import metrics
from services.scorer.settings import ScorerSettings
from services.scorer.spec import COSTS, Part, Spec, parse_spec
from services.scorer.strategies.strategy import (
    NotApplicable,
    ScoringRequest,
    Strategy,
    StrategyClass,
    can_grade_references,
    scores_one_by_one,
)

SCORERS = EntryPoints("ratchet.scorers", "scorer", ScorerError, "scorer,likelihood")
SOON_BUILT = frozenset({"judge", "verifier"}) | COSTS
"""Strategies whose modules load in no time, and whose `build` tells a bad argument or a missing setting."""


def build_strategy(settings: ScorerSettings) -> Strategy:
    """Raises ScorerError if the specification can't be read, or names a strategy that is not there or not usable."""
    return strategy_of(check_spec(settings.scorer), settings)


def strategy_of(spec: Spec, settings: ScorerSettings) -> Strategy:
    """Raises ScorerError for a strategy that is not usable."""
    parts = [_build(part, settings) for part in spec.parts]
    rest = parts[0] if len(parts) == 1 else Weighted(Spec(spec.parts), parts)
    return DecidedFirst(spec, _build(spec.first, settings), rest) if spec.first else rest


def check_parts(settings: ScorerSettings) -> None:
    """Raises ScorerError as `build_strategy` would, but for what a strategy that takes long to load would say.

    A library that is missing here is no fault: in containers another image has it, and its scorer looks for itself.
    """
    for part in check_spec(settings.scorer).strategies:
        if part.name in SOON_BUILT:
            try:
                _build(part, settings)
            except ScorerError as error:
                if not isinstance(error.__cause__, ImportError):
                    raise


def check_spec(text: str) -> Spec:
    """Raises ScorerError if it can't be read, or names what is not installed. Loads nothing."""
    spec = parse_spec(text)
    for part in spec.strategies:
        SCORERS.require(part.name)
    return spec


def _build(part: Part, settings: ScorerSettings) -> Strategy:
    strategy: StrategyClass = SCORERS.load(part.name)
    return strategy.build(part.argument, settings)


MAX_ID_CHARS = 150
_GRAVITY: tuple[ScoreStatus, ...] = ("unscorable", "timeout", "infra_fail")
"""The order of reasons for a whole with several nulls: first those that no retry mends."""


class Composite:
    """Several strategies that start, stop and get on as one."""

    def __init__(self, spec: Spec, parts: Sequence[Strategy]) -> None:
        self._spec = spec
        self._parts = tuple(parts)

    async def start(self) -> None:
        await asyncio.gather(*(part.start() for part in self._parts))

    async def stop(self) -> None:
        await asyncio.gather(*(part.stop() for part in self._parts))

    def trouble(self) -> str | None:
        troubles = (part.trouble() for part in self._parts)
        return next((trouble for trouble in troubles if trouble), None)

    @property
    def one_by_one(self) -> bool:
        return all(map(scores_one_by_one, self._parts))

    @property
    def grades_references(self) -> bool:
        return all(map(can_grade_references, self._parts))

    def advanced_at(self) -> float:
        return max((part.advanced_at() for part in self._parts if isinstance(part, Stepwise)), default=NEVER)

    def _joint_identity(self, revision: str, rubrics: Sequence[str | None]) -> ScorerIdentity:
        """A change in any part is a change of scorer."""
        text = self._spec.text
        return ScorerIdentity(
            id=text if len(text) <= MAX_ID_CHARS else f"weighted:{_sha256(text)}",
            revision=revision,
            rubric_sha256=_sha256(repr(rubrics)) if any(rubrics) else None,
        )


class Weighted(Composite):
    """A weighted sum of strategies, which run at the same time. The weights add up to 1.

    A null of any part makes the whole a null: a failure never becomes a signal. A part that does not apply to an answer
    (`NotApplicable`) is left out of its sum, and the others share its weight. Parts of cost count times what the
    others gave, so that a wrong answer earns nothing by being cheap, and half of a right one half of it at most: with
    0.9*tests + 0.1*tokens:4000 the score is tests * (0.9 + 0.1 * tokens).
    """

    @property
    def identity(self) -> ScorerIdentity:
        identities = [part.identity for part in self._parts]
        revision = " + ".join(identity.revision for identity in identities)
        return self._joint_identity(revision, [identity.rubric_sha256 for identity in identities])

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        by_part = await asyncio.gather(*(part.score(request) for part in self._parts))
        return [self._combine(scores) for scores in zip(*by_part, strict=True)]

    def _combine(self, scores: Sequence[SampleScore]) -> SampleScore:
        parted = list(zip(self._spec.parts, scores, strict=True))
        counted = [(part, score) for part, score in parted if not isinstance(score, NotApplicable)]
        if not any(not part.is_cost for part, _ in counted) and len(counted) < len(scores):
            return NotApplicable(status="unscorable", reason="; ".join(f"{p.text}: {s.reason}" for p, s in parted))
        nulls = [(part.text, score) for part, score in counted if score.score is None]
        if nulls:
            status = next(status for status in _GRAVITY if any(score.status == status for _, score in nulls))
            return SampleScore(
                score=None, status=status, reason="; ".join(f"{part}: {score.reason}" for part, score in nulls)
            )
        given = [(part, part.weight * (score.score or 0.0)) for part, score in counted]
        weight = math.fsum(part.weight for part, _ in counted)
        judged = math.fsum(part.weight for part, _ in counted if not part.is_cost)
        right = sum(earned for part, earned in given if not part.is_cost)
        saved = sum(earned for part, earned in given if part.is_cost)
        total = right + saved * (right / judged if judged else 1.0)
        parts = {part.text: score.score or 0.0 for part, score in counted}
        share = total if len(counted) == len(scores) else total / weight
        return SampleScore(score=min(share, 1.0), reason=_reasons(self._spec, scores), parts=parts)


class DecidedFirst(Composite):
    """Two strategies in turn: the second is asked only about what the first left undecided.

    `and`: decided is a 0, and a null, which stays one; else the product counts. `else`: decided is all but unscorable.
    """

    def __init__(self, spec: Spec, first: Strategy, second: Strategy) -> None:
        super().__init__(spec, (first, second))
        self._first = first
        self._second = second

    @property
    def identity(self) -> ScorerIdentity:
        first, second = self._first.identity, self._second.identity
        revision = f"{first.revision} {self._spec.rule} {second.revision}"
        return self._joint_identity(revision, (first.rubric_sha256, second.rubric_sha256))

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        scores = list(await self._first.score(request))
        undecided = [index for index, score in enumerate(scores) if not self._is_decided(score)]
        metrics.verdicts_saved_by("decided").inc(len(scores) - len(undecided))
        if undecided:
            answers = tuple(request.answers[index] for index in undecided)
            later = await self._second.score(replace(request, answers=answers))
            for index, score in zip(undecided, later, strict=True):
                scores[index] = self._joint(scores[index], score)
        return scores

    def _is_decided(self, score: SampleScore) -> bool:
        if self._spec.rule == "else":
            return score.status != "unscorable"
        return not score.score

    def _joint(self, first: SampleScore, second: SampleScore) -> SampleScore:
        if isinstance(second, NotApplicable) and first.score is not None:
            return first
        if self._spec.rule == "else" or first.score is None or second.score is None:
            return second
        deciding, others = self._spec.strategies[0].text, second.parts or {self._spec.parts[0].text: second.score}
        said = second.reason if second.parts else f"{self._spec.parts[0].text} {second.score:.4g}"
        return second.model_copy(
            update={
                "score": first.score * second.score,
                "reason": f"{deciding} {first.score:.4g}; {said}",
                "parts": {deciding: first.score, **others},
            }
        )


def _reasons(spec: Spec, scores: Sequence[SampleScore]) -> str:
    """Return each part's score, so that a log line explains its own sum."""
    return "; ".join(
        f"{part.text}: {score.reason}" if score.score is None else f"{part.text} {score.score:.4g}"
        for part, score in zip(spec.parts, scores, strict=True)
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
