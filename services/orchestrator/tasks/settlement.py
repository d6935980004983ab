"""From a Reward to lines of the log, and from lines of the log to the Result. Pure.

The Result is a function of the logged lines alone, so that the one sent and the one rebuilt from the log are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from schemas.messages.base import Metadata
from schemas.messages.response import Response, Sample
from schemas.messages.result import Result
from schemas.messages.reward import Reward, SampleScore
from schemas.messages.work import Work
from schemas.records.interaction import Attempts, Interaction, Latencies

NOT_SCORED = SampleScore(score=None, status="unscorable", reason="the scorer gave no score for this sample")


def settle(reward: Reward, response: Response, work: Work, now: datetime) -> list[Interaction]:
    """One line per sample, in the samples' order; one line without a sample where the agent had no answer."""
    if not response.samples:
        return [ending(work, "failed", response.error or "the agent gave no answer", now)]
    scores = _aligned(reward, len(response.samples))
    latencies = _latencies(reward, response, work, now)
    return [
        _interaction(work, response, reward, index, sample, scores[index], latencies, now)
        for index, sample in enumerate(response.samples)
    ]


def ending(work: Work, status: Literal["failed", "expired"], reason: str, now: datetime) -> Interaction:
    """The one line of a task that ended without an answer."""
    waited = max(0.0, (now - work.admitted_at).total_seconds())
    return Interaction(
        task_id=work.task_id,
        input=work.input,
        response=None,
        score=None,
        agent_id=work.agent_id,
        adapter_version=work.arm.adapter_version,
        timestamp=now,
        metadata=work.metadata,
        status=status,
        reason=reason,
        sample=None,
        group_size=0,
        arm=work.arm,
        sampling=work.sampling,
        task_type=work.task_type,
        session_id=work.session_id,
        latencies=Latencies(queue_s=0, generate_s=0, score_queue_s=0, score_s=0, total_s=waited),
    )


def result_of(lines: Sequence[Interaction]) -> Result:
    """The best-scored sample of the group (the first among equals; one without a score is worse than any score)."""
    best = max(lines, key=lambda line: -1.0 if line.score is None else line.score)
    return Result(
        task_id=best.task_id,
        response=best.response,
        score=best.score,
        agent_id=best.agent_id,
        adapter_version=best.adapter_version,
        metadata=Metadata(timestamp=best.timestamp, source="ratchet"),
        status=best.status,
        reason=best.reason,
        sample=best.sample,
    )


def completed_response(draft: Response, work: Work) -> Response:
    """A third-party agent's Response with the Work it answers; its text is the one sample where it lists none."""
    return draft.model_copy(
        update={
            "work": work,
            "samples": draft.samples or (Sample(text=draft.response),),
            "sampling": draft.sampling or work.sampling,
            "adapter_version": draft.adapter_version or work.arm.adapter_version,
        }
    )


def _aligned(reward: Reward, samples: int) -> list[SampleScore]:
    """A score for each sample. A draft-shaped Reward has one score: the first sample's."""
    scores = list(reward.scores)
    if not scores and reward.score is not None:
        scores = [SampleScore(score=reward.score)]
    return (scores + [NOT_SCORED] * samples)[:samples]


def _latencies(reward: Reward, response: Response, work: Work, now: datetime) -> Latencies:
    return Latencies(
        queue_s=response.latencies.queue_s,
        generate_s=response.latencies.generate_s,
        score_queue_s=reward.latencies.queue_s,
        score_s=reward.latencies.score_s,
        total_s=max(0.0, (now - work.admitted_at).total_seconds()),
    )


def _attempts(response: Response, reward: Reward) -> Attempts | None:
    generate, score = response.latencies.attempts, reward.latencies.attempts
    return Attempts(generate=generate or 1, score=score or 1) if generate or score else None


def _interaction(
    work: Work,
    response: Response,
    reward: Reward,
    index: int,
    sample: Sample,
    score: SampleScore,
    latencies: Latencies,
    now: datetime,
) -> Interaction:
    return Interaction(
        task_id=work.task_id,
        input=work.input,
        response=sample.text,
        score=score.score,
        agent_id=response.agent_id,
        adapter_version=response.adapter_version or work.arm.adapter_version,
        timestamp=now,
        metadata=work.metadata,
        sample=index,
        group_size=len(response.samples),
        arm=work.arm,
        adapter_sha256=response.adapter_sha256,
        prompt_ids=response.prompt_ids,
        completion_ids=sample.completion_ids,
        logprobs=sample.logprobs,
        sampling=response.sampling or work.sampling,
        finish_reason=sample.finish_reason,
        reference=work.reference,
        criteria=work.criteria,
        task_type=work.task_type,
        session_id=work.session_id,
        engine=response.engine,
        scoring_agent_id=reward.scoring_agent_id,
        scorer=reward.scorer,
        score_status=score.status,
        score_reason=score.reason,
        latencies=latencies,
        attempts=_attempts(response, reward),
    )
