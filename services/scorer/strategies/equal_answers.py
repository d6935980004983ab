"""Equal answers of a group are judged once: a verdict costs ten times what an answer does, and says nothing new there.

A share of the tasks is judged twice, to know how far two verdicts on the same answer lie apart; the first one counts.
Rescored anchors are passed on as they are: what is looked for in them is a fresh verdict each.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from statistics import fmean

from ratchet.service.telemetry import Log
from schemas.messages.reward import SampleScore
from services.scorer import metrics
from services.scorer.strategies.strategy import ScoringRequest

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
