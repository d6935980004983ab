"""Serves tasks with `select` beyond scores: scores in time for the deadline, and the judge's order.

Neither changes a score: learning and experiments see what it would have been. The user's answer is chosen from the log
(ratchet/logs/best_answer.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Self

from ratchet.service.telemetry import Log
from schemas.messages.reward import SampleScore
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.judge import Judge
from services.scorer.strategies.strategy import Answer, ScoringRequest, ran_out_of_time

FINALISTS = 4
"""Answers that the judge puts in order, at most."""
BEHIND = 0.2
"""A finalist's score is less than this below the best."""
CUT = "not scored by the deadline"

log = Log("scorer")

Scoring = Callable[[ScoringRequest], Awaitable[Sequence[SampleScore]]]


async def scored_by(score: Scoring, request: ScoringRequest, seconds: float) -> list[SampleScore]:
    """Each distinct answer by itself, with its copies; what has no score after so many seconds is a null that says so.

    Copies differ in what they took, which may be a part of the score.
    """
    alike: dict[Answer, list[int]] = {}
    for number, answer in enumerate(request.answers):
        alike.setdefault(answer, []).append(number)
    asked = [
        asyncio.ensure_future(score(replace(request, answers=tuple(request.answers[number] for number in numbers))))
        for numbers in alike.values()
    ]
    if not asked:
        return []
    scores = ran_out_of_time(len(request.answers), CUT)
    try:
        await asyncio.wait(asked, timeout=max(0.0, seconds))
        for numbers, one in zip(alike.values(), asked, strict=True):
            for number, found in zip(numbers, one.result() if one.done() else (), strict=False):
                scores[number] = found
    finally:
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return scores


async def scored_whole(score: Scoring, request: ScoringRequest, seconds: float) -> Sequence[SampleScore]:
    """All answers together; nulls that say so if that takes more than so many seconds."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            return await score(request)
    except TimeoutError:
        return ran_out_of_time(len(request.answers), CUT)


def finalists(answers: Sequence[Answer], scores: Sequence[SampleScore]) -> list[int]:
    """The best-scored distinct answers, the best first; none without a score."""
    first_of = {answer: index for index, answer in reversed(list(enumerate(answers)))}
    known = [(-value, index) for index in first_of.values() if (value := scores[index].score) is not None]
    best = sorted(known)[:FINALISTS]
    return [index for score, index in best if score - best[0][0] < BEHIND]


def in_places(scores: Sequence[SampleScore], order: Sequence[int]) -> list[SampleScore]:
    """Return the scores, with the place of those in the judge's order."""
    places = {index: place for place, index in enumerate(order, 1)}
    return [
        score.model_copy(update={"place": places[index]}) if index in places else score
        for index, score in enumerate(scores)
    ]


class JudgesOrder:
    """A judge that sees the finalists side by side: as often as they are, so that each once stands at each place.

    Its order is that of the means of what it gave them; then of their scores, then of the samples.
    """

    def __init__(self, judge: Judge) -> None:
        """`judge`: relative. It need not be who scores."""
        self._judge = judge

    @classmethod
    def build(cls, settings: ScorerSettings) -> Self | None:
        """None where no task may ask for it. Raises ScorerError where no judge is named."""
        if not settings.judge_selects or settings.scorer_audits:
            return None
        return cls(Judge.build("relative", settings))

    async def start(self) -> None:
        """Raises ScorerError where it can never work."""
        await self._judge.start()

    async def stop(self) -> None:
        await self._judge.stop()

    def advanced_at(self) -> float:
        return self._judge.advanced_at()

    async def preferred_order(
        self, request: ScoringRequest, scores: Sequence[SampleScore], seconds: float
    ) -> list[int]:
        """Return the finalists, the preferred first; none where the judge did not say, or not in time."""
        among = finalists(request.answers, scores)
        if len(among) < 2:
            return among
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                means = await self._judge.compare(request, [request.answers[index] for index in among])
        except TimeoutError:
            means = None
        if means is None:
            log.warning("not-compared", f"the judge put {len(among)} answers into no order: the best-scored is chosen")
            return []
        given = dict(zip(among, means, strict=True))
        return sorted(among, key=lambda index: -given[index])  # stable: they come by their scores
