"""The scorer's worker: a Response in, a Reward out. It knows no strategy by name and no connection.

The auditor is the same worker on queues of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fastapi import APIRouter

from ratchet.bus.in_hand import NEVER, Stepwise
from ratchet.bus.protocol import Bus, Delivery, decode_delivery, derived_id
from ratchet.bus.retry_policy import RETRY_LADDER
from ratchet.bus.topology import AUDIT_SCORES, AUDITS, DRAFT_RESPONSES, RESPONSES, REWARDS
from ratchet.conversation.stops import cut_samples
from ratchet.logs.best_answer import NOT_THERE
from ratchet.logs.names import is_own, is_rescoring
from ratchet.runtime.runner import Subscription
from ratchet.service import failpoint
from ratchet.service.deadline_time import DeadlineTime
from ratchet.service.errors import Retry, ScorerError
from ratchet.service.telemetry import Log, task_in_hand
from schemas.messages.base import Metadata
from schemas.messages.response import Response, Sample
from schemas.messages.reward import Reward, SampleScore, ScorerIdentity, ScoringLatencies
from schemas.messages.work import Work
from services.scorer import metrics
from services.scorer.api import scorer_router
from services.scorer.deliberation import JudgesOrder, in_places, scored_by, scored_whole
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import (
    Answer,
    ScoringRequest,
    Spent,
    Strategy,
    can_grade_references,
    failure,
    ran_out_of_time,
    scores_one_by_one,
    spent_of,
)

WEIGHT = 1 / 16
"""The weight of the newest scoring in the expected time."""
MARGIN = 1.25
SETTLED_S = 0.5
"""The time from a score to the Result at the user."""

TOO_LATE = "expired before it was scored: its deadline had passed, or would have before a score"


class Lateness:
    """Says which answers come too late to be worth a judge's time; it learns how long scoring takes at the moment.

    A scorer that is slower than its queue grows works at the queue's head, where every answer is about to expire. Asked
    about each, the judge would be busy with answers nobody waits for; those are passed over, and the rest come in time.
    """

    def __init__(self) -> None:
        self._in_hand = 0
        self._took_s = 0.0
        self._each_s = 0.0
        """The same over the number in hand when it began: what one in hand costs the next."""

    def begin(self) -> int:
        """An answer goes to the judge. Returns how many are there now."""
        self._in_hand += 1
        return self._in_hand

    def end(self, took_s: float, in_hand: int) -> None:
        """It came back, with a score or without; `in_hand` is what `begin` said."""
        self._in_hand -= 1
        self._took_s += (took_s - self._took_s) * WEIGHT
        self._each_s += (took_s / in_hand - self._each_s) * WEIGHT

    def too_late(self, left_s: float) -> bool:
        """Tell whether so many seconds are too few for a score. An idle judge is asked as long as there is any time."""
        if not self._in_hand:
            return left_s <= 0
        return left_s <= SETTLED_S + MARGIN * min(2 * self._took_s, (self._in_hand + 1) * self._each_s)


LOST_ROLLOUT = SampleScore(score=None, status="infra_fail", reason="the rollout was lost by a failure of ours")

CALLED_OFF = SampleScore(score=None, status="cancelled", reason="called off before it ended")

log = Log("scorer")


class ScorerWorker:
    """Handles deliveries of `responses`, as the auditor those of `audits`.

    The same Response handled again gives a Reward of the same message id.
    """

    name = "scorer"

    def __init__(
        self,
        settings: ScorerSettings,
        bus: Bus,
        strategy: Strategy,
        *,
        order: JudgesOrder | None = None,
        wall: Callable[[], float] = time.time,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """`order`: for tasks that have the judge choose.

        `wall`, in seconds since 1970, may jump; `seconds` never does.
        """
        self._deliberates = not settings.scorer_audits
        self._references_teach = "reference" in settings.demonstrations and not settings.scorer_audits
        self._order = order
        self._retries = settings.scorer_retries
        self._prefetch = settings.scorer_prefetch
        self._from, self._to = (AUDITS, AUDIT_SCORES) if settings.scorer_audits else (RESPONSES, REWARDS)
        self._bus = bus
        self._strategy = strategy
        self._wall = wall
        self._seconds = seconds
        self._time = DeadlineTime(wall, seconds)
        self._lateness = Lateness()

    def routers(self) -> Sequence[APIRouter]:
        return [scorer_router(self)]

    @property
    def identity(self) -> ScorerIdentity:
        return self._strategy.identity

    async def start(self) -> None:
        await self._strategy.start()
        if self._order is not None:
            await self._order.start()
        self._time.start()
        identity = self._strategy.identity
        log.info("scorer-started", f"scoring {self._from} with {identity.id}", **identity.model_dump())

    def subscriptions(self) -> Sequence[Subscription]:
        return [Subscription(self._from, self.handle, self._prefetch, advanced_at=self._advanced_at)]

    def _advanced_at(self) -> float:
        strategy = self._strategy.advanced_at() if isinstance(self._strategy, Stepwise) else NEVER
        return strategy if self._order is None else max(strategy, self._order.advanced_at())

    def trouble(self) -> str | None:
        return self._strategy.trouble()

    async def stop(self) -> None:
        self._time.stop()
        await self._strategy.stop()
        if self._order is not None:
            await self._order.stop()

    async def handle(self, delivery: Delivery) -> None:
        """Returns once the Reward is confirmed. Raises Reject for no Response, Retry where scoring itself failed."""
        response = decode_delivery(Response, delivery)
        task_in_hand.set(response.task_id)
        if response.work is None:
            await self._send_on(delivery, response)
        elif response.error is not None or not response.samples:
            latencies = ScoringLatencies(queue_s=self._seconds_waited(response))
            await self._publish(delivery.body, self._reward(response, response.work, (), latencies))
            metrics.tasks_of("unanswered").inc()
        elif self._lateness.too_late(self._time.left_of(response.work)):
            await self._pass_over(delivery, response, response.work)
        else:
            await self._score(delivery, response, response.work)

    async def _send_on(self, delivery: Delivery, response: Response) -> None:
        """A draft-shaped Response lacks its Work: the orchestrator adds it and sends the whole back here."""
        message_id = delivery.message_id or derived_id(response.task_id, "response")
        failpoint.reach("worked")
        await self._bus.publish(DRAFT_RESPONSES, delivery.body, type=Response.TYPE, message_id=message_id)
        metrics.tasks_of("draft").inc()

    async def _pass_over(self, delivery: Delivery, response: Response, work: Work) -> None:
        scores = not_of_lost(response, ran_out_of_time(len(response.samples), TOO_LATE))
        latencies = ScoringLatencies(queue_s=self._seconds_waited(response), attempts=delivery.attempts)
        await self._publish(delivery.body, self._reward(response, work, scores, latencies))
        metrics.tasks_of("late").inc()

    async def _score(self, delivery: Delivery, response: Response, work: Work) -> None:
        queue_s = self._seconds_waited(response)
        began = self._seconds()
        in_hand = self._lateness.begin()
        try:
            scores = not_of_lost(response, await self._score_samples(response, work, delivery.attempt))
            reference_score = await self._reference_score(response, work)
        finally:
            score_s = self._seconds() - began
            self._lateness.end(score_s, in_hand)
        latencies = ScoringLatencies(queue_s=queue_s, score_s=score_s, attempts=delivery.attempts)
        reward = self._reward(response, work, scores, latencies)
        await self._publish(delivery.body, reward.model_copy(update={"reference_score": reference_score}))
        _count(response, scores, latencies)

    async def _reference_score(self, response: Response, work: Work) -> float | None:
        """Score the task's reference as an answer that took nothing: one more answer a task to score. 0 where it can't
        be scored.

        None where it would not tell anything.
        """
        teaches = self._references_teach and not is_own(work.arm.experiment_id)
        if work.reference is None or not teaches or not can_grade_references(self._strategy):
            return None
        answer = Answer(work.reference, "stop", spent=Spent(tokens=0, seconds=0.0))
        (score,) = await self.score(replace(request_of(response, work), answers=(answer,)))
        return 0.0 if score.status == "unscorable" else score.score

    async def _score_samples(self, response: Response, work: Work, attempt: int) -> list[SampleScore]:
        """Score each sample. In a deliberation those that were lost or called off are not scored."""
        request = request_of(response, work)
        if work.select is None or not self._deliberates:
            return list(await self._scores(request, attempt))
        samples = response.samples
        there = [number for number, sample in enumerate(samples) if sample.status not in NOT_THERE]
        request = replace(request, answers=tuple(request.answers[number] for number in there))
        scores = await self._score_and_order(request, work, attempt) if there else ()
        of_sample = dict(zip(there, scores, strict=True))
        return [of_sample.get(number, LOST_ROLLOUT) for number in range(len(samples))]

    async def _score_and_order(self, request: ScoringRequest, work: Work, attempt: int) -> Sequence[SampleScore]:
        """Score in time for the deadline. Return also, where the judge is to choose, its order."""

        def left_s() -> float:
            return self._time.left_of(work) - SETTLED_S

        by_the_deadline = scored_by if scores_one_by_one(self._strategy) else scored_whole
        scores = await by_the_deadline(self.score, request, left_s())
        self._retry_failed(scores, attempt, left_s())
        if work.select == "judge" and self._order is not None:
            scores = in_places(scores, await self._order.preferred_order(request, scores, left_s()))
        return scores

    async def score(self, request: ScoringRequest) -> Sequence[SampleScore]:
        """One score per answer. Raises nothing: where the strategy fails, they are nulls that say so."""
        try:
            scores = await self._strategy.score(request)
            if len(scores) != len(request.answers):
                raise ScorerError(f"{len(request.answers)} answers got {len(scores)} scores: the strategy has a fault")
        except Exception as error:
            log.error("scoring-failed", f"the scorer failed: {error!r}", exc_info=error)
            scores = failure(len(request.answers), f"the scorer failed: {error!r}")
        return scores

    async def _scores(self, request: ScoringRequest, attempt: int) -> Sequence[SampleScore]:
        scores = await self.score(request)
        self._retry_failed(scores, attempt)
        return scores

    def _retry_failed(self, scores: Sequence[SampleScore], attempt: int, left_s: float = math.inf) -> None:
        """Unless it would come back too late. Raises Retry."""
        pause_s = RETRY_LADDER[min(attempt, len(RETRY_LADDER) - 1)].delay_ms / 1000
        if attempt < self._retries and pause_s < left_s and all(score.status == "infra_fail" for score in scores):
            metrics.tasks_of("retried").inc()
            raise Retry(f"no answer could be scored: {scores[0].reason}")

    async def _publish(self, response_body: bytes, reward: Reward) -> None:
        failpoint.reach("worked")
        scorer = self._strategy.identity
        message_id = derived_id(reward.task_id, f"reward/{scorer.id}@{scorer.revision}")
        body = reward.encode_around("scored", response_body)
        await self._bus.publish(self._to, body, type=Reward.TYPE, message_id=message_id)

    def _reward(
        self, response: Response, work: Work, scores: Sequence[SampleScore], latencies: ScoringLatencies
    ) -> Reward:
        """Return the Reward without the Response."""
        identity = self._strategy.identity
        # `criteria` is one of the drafted fields: what the answers were judged by.
        now = datetime.fromtimestamp(self._wall(), UTC)
        metadata = {"timestamp": now, "source": "scorer", "criteria": work.criteria or identity.id}
        return Reward(
            task_id=response.task_id,
            score=scores[0].score if scores else None,
            scoring_agent_id=identity.id,
            metadata=Metadata.model_validate(metadata),
            scores=tuple(scores),
            scorer=identity,
            latencies=latencies,
        )

    def _seconds_waited(self, response: Response) -> float:
        """Seconds since the agent answered; 0 where its clock is ahead of ours or it told no time."""
        answered = response.metadata.timestamp
        return max(0.0, self._wall() - answered.timestamp()) if answered else 0.0


def request_of(response: Response, work: Work) -> ScoringRequest:
    return ScoringRequest(
        task_id=response.task_id,
        prompt=work.input,
        answers=tuple(
            Answer(told.text, told.finish_reason, told.artifact, spent_on(sample))
            for sample, told in zip(response.samples, cut_samples(response.samples, work.sampling.stop), strict=True)
        ),
        reference=work.reference,
        criteria=work.criteria,
        task_type=work.task_type,
        workspace=work.workspace,
        fresh=is_rescoring(work.arm.experiment_id),
    )


def spent_on(sample: Sample) -> Spent:
    """Return what a sample cost; without usage, the tokens that are there."""
    return Spent(sample.sampled_tokens) if sample.usage is None else spent_of(sample.usage)


def not_of_lost(response: Response, scores: Sequence[SampleScore]) -> Sequence[SampleScore]:
    """Give no score to what a failure of ours ended or what was called off: it is no work of the model."""
    instead = {"lost": LOST_ROLLOUT, "cancelled": CALLED_OFF}
    if instead.keys().isdisjoint([sample.status for sample in response.samples]):
        return scores
    return [
        instead.get(sample.status or "finished", score) for sample, score in zip(response.samples, scores, strict=True)
    ]


def _count(response: Response, scores: Sequence[SampleScore], latencies: ScoringLatencies) -> None:
    metrics.tasks_of("scored").inc()
    metrics.score_seconds.observe(latencies.score_s)
    metrics.queue_seconds.observe(latencies.queue_s)
    by_version = metrics.scores.labels(response.agent_id, response.adapter_version or "unknown")
    for score in scores:
        metrics.samples_of(score.status).inc()
        if score.score is not None:
            by_version.observe(score.score)
