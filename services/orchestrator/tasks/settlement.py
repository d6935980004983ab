"""From a Reward to lines of the log. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Literal

from ratchet.conversation.stops import cut_samples
from ratchet.service.errors import Reject, one_line
from schemas.messages.response import Response, Sample
from schemas.messages.reward import NOT_MENTIONED, Reward, SampleScore
from schemas.messages.work import Work
from schemas.records.interaction import Attempts, Interaction, Latencies

ID_BYTES = 8
"""Most bytes of a token's number in the log; and no token has less than a byte of the prompt."""
NOT_SCORED = SampleScore(score=None, status="unscorable", reason=NOT_MENTIONED)

OF_WORK = tuple(name for name in Interaction.model_fields if name in Work.model_fields)
"""The fields that a line takes from its task: those of the same name. A field of Interaction logs a new one."""
OF_SAMPLE = tuple(name for name in Sample.model_fields if name in Interaction.model_fields and name != "status")
"""The same of a sample; the status of a line is its task's."""
NOT_LOGGED = frozenset(
    {
        "samples",
        "temperature",
        "top_p",
        "max_tokens",
        "stop",
        "format",
        "priority",
        "deadline",
        "evaluation",
        "role_versions",
        "work_to",
        "needs_token_texts",
        "workspace",
        "programs",
        "local_only",
        "approval",
        "constraints",
    }
)
"""Fields of a Task that no line repeats: `sampling` has what came of the first six, the Work's own line the others,
the arm the evaluation and its versions, and each sample the texts, its artifact and its program."""
CANCELLED = "its task had been cancelled"
OF_ANSWERS = frozenset({"reference", "criteria"})
"""The fields that a task without an answer was not judged by."""


def settle(
    reward: Reward, response: Response, work: Work, now: datetime, epoch: int | None = None
) -> list[Interaction]:
    """One line per sample, in the samples' order; one line without a sample where the agent had no answer.

    `epoch`: of the leader whose log they go to; None where nobody leads.
    """
    if not response.samples:
        return [ending(work, "failed", response.error or "the agent gave no answer", now)]
    scores = aligned_scores(reward, len(response.samples))
    samples = cut_samples(response.samples, work.sampling.stop)
    of_group = _of(work) | {
        "agent_id": response.agent_id,
        "adapter_version": work.arm.adapter_version,
        "adapter_sha256": work.arm.adapter_sha256,
        "sampling": response.sampling or work.sampling,
        "prompt_ids": response.prompt_ids,
        "engine": response.engine,
        "scoring_agent_id": reward.scoring_agent_id,
        "scorer": reward.scorer,
        "reference_score": reward.reference_score,
        "timestamp": now,
        "group_size": len(response.samples),
        "latencies": _latencies(reward, response, work, now),
        "attempts": _attempts(response, reward),
        "epoch": epoch,
    }
    return [
        Interaction.from_valid(
            of_group
            | {name: sample.__dict__[name] for name in OF_SAMPLE}
            | {
                "sample": index,
                "response": sample.text,
                "sample_status": sample.status,
                "sample_says": sample.says,
                "score": score.score,
                "score_status": score.status,
                "score_reason": score.reason,
                "score_parts": score.parts,
                "place": score.place,
            }
        )
        for index, (sample, score) in enumerate(zip(samples, scores, strict=True))
    ]


def ending(work: Work, status: Literal["failed", "expired", "cancelled"], reason: str, now: datetime) -> Interaction:
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


def called_off(lines: Sequence[Interaction]) -> list[Interaction]:
    """Return the late answers to a cancelled task as they are logged: they say what they took, and have no score."""
    changed = {"status": "cancelled", "sample_status": "cancelled", "score": None, "score_status": "cancelled"}
    changed |= dict.fromkeys(("score_reason", "score_parts", "place"))
    return [line.model_copy(update=changed | {"sample_says": line.sample_says or CANCELLED}) for line in lines]


def check_adapter(response: Response, work: Work) -> None:
    """Raises Reject for an answer that names another adapter, or program, than the one its task was assigned to."""
    arm = work.arm
    if arm.roles and any(segment.role is None for one in response.samples for segment in one.segments or ()):
        raise Reject(
            f"the answer to task {work.task_id!r} does not say which role sampled what: update the runner that "
            "answered it, which knows of no roles"
        )
    others = {sample.program for sample in response.samples} - {None, arm.program}
    if arm.program_revision is not None and others:
        raise Reject(
            f"the answer says that it is by {', '.join(sorted(map(str, others)))[:200]}, but task {work.task_id!r} was "
            f"assigned to program {arm.program}: update the runner that answered it, which knows of no experiments of "
            "programs"
        )
    version, sha256 = response.adapter_version or arm.adapter_version, response.adapter_sha256 or arm.adapter_sha256
    if version != arm.adapter_version or (arm.adapter_sha256 is not None and sha256 != arm.adapter_sha256):
        raise Reject(
            f"the answer says that it is by adapter {one_line(version, 40)} ({_short(sha256)}), but task "
            f"{work.task_id!r} was assigned to {arm.adapter_version} ({_short(arm.adapter_sha256)}): nothing can be "
            f"learned from it. An agent answers with the adapter that its Work names, or names none"
        )


def check_agent(response: Response, work: Work, agents: Collection[str]) -> None:
    """Raises Reject for an answer in the name of another of the fleet's agents: that one would learn from it.

    A name that is no agent's of the fleet, a program's own, is as good as any.
    """
    if response.agent_id != work.agent_id and response.agent_id in agents:
        raise Reject(
            f"the answer says that it is by {response.agent_id!r}, another agent of this fleet, but task "
            f"{work.task_id!r} was given to {work.agent_id!r}: an agent answers in the name that its Work has, or in "
            f"one of its own"
        )


def check_size(response: Response, max_logged_bytes: int) -> None:
    """Raises Reject for ids of a prompt that no admitted task can have: each line of the group repeats them."""
    most = ID_BYTES * max_logged_bytes
    if (size := ID_BYTES * len(response.prompt_ids or ()) * len(response.samples)) > most:
        raise Reject(
            f"the prompt_ids of task {response.task_id!r} would take {size:,} bytes in the log, and may take {most:,}: "
            f"no prompt that was admitted has so many tokens (RATCHET_MAX_LOGGED_BYTES)"
        )


def _short(sha256: str | None) -> str:
    return f"sha256 {sha256[:8]}…" if sha256 else "no sha256"


def completed_response(draft: Response, work: Work) -> Response:
    """A third-party agent's Response with the Work it answers; its text is the one sample where it lists none, and ends
    at its stop string then. Listed ones go to the scorer whole: their tokens are what they cost.
    """
    samples = draft.samples or cut_samples([Sample(text=draft.response)], work.sampling.stop)
    return draft.model_copy(
        update={
            "work": work,
            "response": samples[0].text,
            "samples": samples,
            "sampling": draft.sampling or work.sampling,
            "adapter_version": work.arm.adapter_version,
        }
    )


def _of(work: Work) -> dict[str, Any]:
    fields = work.__dict__
    return {name: fields[name] for name in OF_WORK}


def _age(work: Work, now: datetime) -> float:
    """Age of the task in seconds."""
    return max(0.0, (now - work.admitted_at).total_seconds())


def aligned_scores(reward: Reward, samples: int) -> list[SampleScore]:
    """A score for each sample. A draft-shaped Reward has one score: the first sample's."""
    scores = list(reward.scores)
    if not scores and reward.score is not None:
        scores = [SampleScore(score=reward.score)]
    return (scores + [NOT_SCORED] * samples)[:samples]


def _latencies(reward: Reward, response: Response, work: Work, now: datetime) -> Latencies:
    return Latencies.from_valid(
        {
            "queue_s": response.latencies.queue_s,
            "generate_s": response.latencies.generate_s,
            "score_queue_s": reward.latencies.queue_s,
            "score_s": reward.latencies.score_s,
            "total_s": _age(work, now),
        }
    )


def _attempts(response: Response, reward: Reward) -> Attempts | None:
    generate, score = response.latencies.attempts, reward.latencies.attempts
    return Attempts(generate=generate or 1, score=score or 1) if generate or score else None
