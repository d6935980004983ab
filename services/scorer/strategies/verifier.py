"""Scores by comparison with the task's reference: exact, normalised, numeric, regex, graded. No model, no network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from ratchet.service.errors import ScorerError
from schemas.messages.reward import SampleScore, ScorerIdentity
from services.scorer.matching import numbers, text
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import Answer, ScoringRequest, no_score

REVISION = "1"
"""Raise it with every change here or in `matching` that changes a score."""

INLINE_CHARS = 50_000
"""More text than this is compared in a thread, so that the heartbeats of the broker's connection go on."""

Comparison = Callable[[str, str], float]


class Verifier:
    """A task without a reference, or with one that can't be read, is unscorable."""

    def __init__(self, mode: str, compare: Comparison, *, revision: str = REVISION, threaded: bool = False) -> None:
        self._compare = compare
        self._threaded = threaded
        self._identity = ScorerIdentity(id=f"verifier:{mode}", revision=revision)

    @classmethod
    def build(cls, argument: str, settings: ScorerSettings) -> Self:
        relative, absolute = settings.scorer_numeric_relative_tolerance, settings.scorer_numeric_absolute_tolerance
        match argument or "normalised":
            case "exact":
                return cls("exact", text.exact)
            case "normalised":
                return cls("normalised", text.normalised)
            case "graded":
                return cls("graded", text.token_f1)
            case "numeric":
                revision = f"{REVISION};relative={relative:g};absolute={absolute:g}"
                return cls(
                    "numeric", lambda given, wanted: _same_number(given, wanted, relative, absolute), revision=revision
                )
            case "regex":
                return cls("regex", text.matches, threaded=True)
            case unknown:
                raise ScorerError(
                    f"there is no verifier {unknown!r}: choose verifier:exact, normalised, numeric, regex or graded"
                )

    @property
    def identity(self) -> ScorerIdentity:
        return self._identity

    async def start(self) -> None:
        """Nothing to load."""

    async def stop(self) -> None:
        """Nothing to close."""

    def trouble(self) -> str | None:
        return None

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        if request.reference is None:
            return no_score(len(request.answers), "the task has no reference to verify against")
        length = sum(len(answer.text) for answer in request.answers) + len(request.reference)
        if self._threaded or length > INLINE_CHARS:
            return await asyncio.to_thread(self._score, request.answers, request.reference)
        return self._score(request.answers, request.reference)

    def _score(self, answers: tuple[Answer, ...], reference: str) -> list[SampleScore]:
        return [self._verdict(answer.text, reference) for answer in answers]

    def _verdict(self, answer: str, reference: str) -> SampleScore:
        try:
            return SampleScore(score=self._compare(answer, reference))
        except ScorerError as error:
            return no_score(1, str(error))[0]


def _same_number(answer: str, reference: str, relative: float, absolute: float) -> float:
    wanted = numbers.final_number(reference)
    if wanted is None:
        raise ScorerError(f"the reference {reference[:100]!r} holds no number")
    given = numbers.final_number(answer)
    return float(given is not None and numbers.equal(given, wanted, relative=relative, absolute=absolute))
