"""Scores by comparison with the task's reference: exact, normalised, numeric, regex, graded, json. No model."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from statistics import fmean
from typing import Self

from ratchet.service.entry_points import to_install
from ratchet.service.errors import ScorerError, one_line
from ratchet.service.telemetry import Log
from schemas.messages.reward import SampleScore, ScorerIdentity
from services.scorer import metrics
from services.scorer.matching import numbers, text
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import Answer, NothingToOpen, ScoringRequest, no_score

log = Log("judge")

Scoring = Callable[[ScoringRequest], Awaitable[list[SampleScore]]]


async def score_distinct(request: ScoringRequest, score: Scoring, *, repeat_share: float = 0.0) -> list[SampleScore]:
    """Score each distinct answer once; all its copies get that score."""
    if request.fresh:
        return await score(request)
    distinct = tuple(dict.fromkeys(request.answers))
    asked = replace(request, answers=distinct)
    metrics.verdicts_saved_by("equal").inc(len(request.answers) - len(distinct))
    if is_repeated(request.task_id, repeat_share):
        repeated = replace(asked, task_id=f"{request.task_id}/again")
        first, again = await asyncio.gather(score(asked), score(repeated))
        _note_difference(first, again)
    else:
        first = await score(asked)
    scores = dict(zip(distinct, first, strict=True))
    return [scores[answer] for answer in request.answers]


def is_repeated(task_id: str, share: float) -> bool:
    """Return whether a task belongs to the share that is judged twice; the same for the same task."""
    drawn = int.from_bytes(hashlib.blake2b(f"judged twice/{task_id}".encode(), digest_size=8).digest())
    return drawn < share * 2**64


def _note_difference(first: list[SampleScore], again: list[SampleScore]) -> None:
    pairs = [(one.score, two.score) for one, two in zip(first, again, strict=True)]
    apart = [abs(one - two) for one, two in pairs if one is not None and two is not None]
    if not apart:
        return
    for difference in apart:
        metrics.verdict_difference.observe(difference)
    words = f"{len(apart)} answers were judged twice: the verdicts lie {fmean(apart):.3f} apart on average"
    log.info("judged-twice", words, answers=len(apart), mean_difference=fmean(apart), largest=max(apart))


REVISION = "1"
"""Raise it with every change here or in `matching` that changes a score."""

INLINE_CHARS = 50_000
"""More text than this is compared in a thread, so that the heartbeats of the broker's connection go on."""

Comparison = Callable[[str, str], float]
Verdict = Callable[[str, ScoringRequest], SampleScore]
"""A verdict on one answer. Raises ScorerError for a task that can't be scored."""


class Verifier(NothingToOpen):
    """A task without a reference, or with one that can't be read, is unscorable."""

    one_by_one = True

    @property
    def grades_references(self) -> bool:
        """False for numbers and patterns: a number may stand for a whole derivation, and a pattern is no answer."""
        return self._identity.id not in ("verifier:numeric", "verifier:regex")

    def __init__(self, mode: str, verdict: Verdict, *, revision: str = REVISION, threaded: bool = False) -> None:
        self._verdict = verdict
        self._threaded = threaded
        self._identity = ScorerIdentity(id=f"verifier:{mode}", revision=revision)

    @classmethod
    def build(cls, argument: str, settings: ScorerSettings) -> Self:
        relative, absolute = settings.scorer_numeric_relative_tolerance, settings.scorer_numeric_absolute_tolerance
        match argument or "normalised":
            case "exact":
                return cls("exact", _by_comparison(text.exact))
            case "normalised":
                return cls("normalised", _by_comparison(text.equal_normalised))
            case "graded":
                return cls("graded", _by_comparison(text.token_f1))
            case "numeric":
                revision = f"{REVISION};relative={relative:g};absolute={absolute:g}"
                same = _by_comparison(lambda given, wanted: _same_number(given, wanted, relative, absolute))
                return cls("numeric", same, revision=revision)
            case "regex":
                return cls("regex", _by_comparison(text.matches), threaded=True)
            case "json":
                return cls("json", _json_verdict())
            case unknown:
                raise ScorerError(
                    f"there is no verifier {unknown!r}: choose verifier:exact, normalised, numeric, regex, graded or "
                    "json"
                )

    @property
    def identity(self) -> ScorerIdentity:
        return self._identity

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        beside = len(request.reference or "") + len(request.criteria or "")
        if self._threaded or sum(len(answer.text) for answer in request.answers) + beside > INLINE_CHARS:
            return await asyncio.to_thread(self._score, request)
        return self._score(request)

    def _score(self, request: ScoringRequest) -> list[SampleScore]:
        return [self._check(answer, request) for answer in request.answers]

    def _check(self, answer: Answer, request: ScoringRequest) -> SampleScore:
        try:
            return self._verdict(answer.text, request)
        except ScorerError as error:
            return no_score(1, str(error))[0]


def _by_comparison(compare: Comparison) -> Verdict:
    """The verdict that is a comparison with the reference."""

    def verdict(answer: str, request: ScoringRequest) -> SampleScore:
        if request.reference is None:
            raise ScorerError("the task has no reference to verify against")
        return SampleScore(score=compare(answer, request.reference))

    return verdict


def _same_number(answer: str, reference: str, relative: float, absolute: float) -> float:
    wanted = numbers.final_number(reference)
    if wanted is None:
        raise ScorerError(f"the reference {reference[:100]!r} holds no number")
    given = numbers.final_number(answer)
    return float(given is not None and numbers.equal(given, wanted, relative=relative, absolute=absolute))


def _json_verdict() -> Verdict:
    """Imported where it is asked for: the library that checks schemas is no other verifier's."""
    try:
        from services.scorer.matching.json_grade import grade
    except ModuleNotFoundError as error:
        raise ScorerError(f"verifier:json can't be loaded ({error}): {to_install('scorer')}") from error

    def verdict(answer: str, request: ScoringRequest) -> SampleScore:
        graded = grade(answer, request.reference, request.criteria)
        return SampleScore(score=graded.score, reason=one_line(graded.reason))

    return verdict
