"""From a Reward to lines of the log. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from schemas.messages.response import Response, Sample
from schemas.messages.reward import NOT_MENTIONED, Reward, SampleScore
from schemas.messages.work import Work
from schemas.records.interaction import Attempts, Interaction, Latencies

NOT_SCORED = SampleScore(score=None, status="unscorable", reason=NOT_MENTIONED)

OF_WORK = tuple(name for name in Interaction.model_fields if name in Work.model_fields)
"""What a line says of its task: whatever has the same name in both. A new field is logged by a line in Interaction."""
NOT_LOGGED = frozenset({"samples", "temperature", "top_p", "max_tokens", "priority", "deadline"})
"""Fields of a Task that no line repeats: `sampling` has what came of the first four, the Work's own line the others."""
OF_ANSWERS = frozenset({"reference", "criteria"})
"""What a task without an answer was not judged by."""


def settle(reward: Reward, response: Response, work: Work, now: datetime) -> list[Interaction]:
    """One line per sample, in the samples' order; one line without a sample where the agent had no answer."""
    if not response.samples:
        return [ending(work, "failed", response.error or "the agent gave no answer", now)]
    scores = _aligned(reward, len(response.samples))
    of_group = _of(work) | {
        "agent_id": response.agent_id,
        "adapter_version": response.adapter_version or work.arm.adapter_version,
        "adapter_sha256": response.adapter_sha256,
        "sampling": response.sampling or work.sampling,
        "prompt_ids": response.prompt_ids,
        "engine": response.engine,
        "scoring_agent_id": reward.scoring_agent_id,
        "scorer": reward.scorer,
        "timestamp": now,
        "group_size": len(response.samples),
        "latencies": _latencies(reward, response, work, now),
        "attempts": _attempts(response, reward),
    }
    return [
        Interaction(
            **of_group,
            sample=index,
            response=sample.text,
            completion_ids=sample.completion_ids,
            logprobs=sample.logprobs,
            finish_reason=sample.finish_reason,
            score=score.score,
            score_status=score.status,
            score_reason=score.reason,
        )
        for index, (sample, score) in enumerate(zip(response.samples, scores, strict=True))
    ]


def ending(work: Work, status: Literal["failed", "expired"], reason: str, now: datetime) -> Interaction:
    """The one line of a task that ended without an answer."""
    fields = _of(work) | dict.fromkeys(OF_ANSWERS) | {"adapter_version": work.arm.adapter_version}
    latencies = Latencies(queue_s=0, generate_s=0, score_queue_s=0, score_s=0, total_s=_age(work, now))
    return Interaction(
        **fields,
        timestamp=now,
        status=status,
        reason=reason,
        sample=None,
        group_size=0,
        response=None,
        score=None,
        latencies=latencies,
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


def _of(work: Work) -> dict[str, Any]:
    return {name: getattr(work, name) for name in OF_WORK}


def _age(work: Work, now: datetime) -> float:
    """In seconds."""
    return max(0.0, (now - work.admitted_at).total_seconds())


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
        total_s=_age(work, now),
    )


def _attempts(response: Response, reward: Reward) -> Attempts | None:
    generate, score = response.latencies.attempts, reward.latencies.attempts
    return Attempts(generate=generate or 1, score=score or 1) if generate or score else None
