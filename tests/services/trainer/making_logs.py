"""Logs of interactions for the trainer's tests: groups of a given shape, and the samples of a real tiny model."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from schemas.messages.base import Metadata
from schemas.messages.feedback import LoggedFeedback
from schemas.messages.reward import ScorerIdentity
from schemas.messages.work import Arm, Sampling
from schemas.records.interaction import Interaction, Latencies

AT = datetime(2031, 5, 1, 12, 0, tzinfo=UTC)
SCORER = ScorerIdentity(id="verifier:graded", revision="1")
LATENCIES = Latencies(queue_s=0, generate_s=0, score_queue_s=0, score_s=0, total_s=0)
FIELDS: dict[str, Any] = {
    "input": "sort: ba",
    "response": "ab",
    "score": 1.0,
    "agent_id": "small",
    "adapter_version": "v1.0.0",
    "timestamp": AT,
    "metadata": Metadata(),
    "group_size": 2,
    "arm": Arm(sequence=0),
    "prompt_ids": (1, 2, 3),
    "completion_ids": (4, 5),
    "logprobs": (-0.5, -0.25),
    "sampling": Sampling(n=2),
    "finish_reason": "stop",
    "scorer": SCORER,
    "score_status": "ok",
    "latencies": LATENCIES,
}


def line(task_id: str, sample: int | None, **changed: Any) -> bytes:
    return Interaction(task_id=task_id, sample=sample, **(FIELDS | changed)).encode() + b"\n"


def group(task_id: str, scores: Sequence[float | None], **changed: Any) -> list[bytes]:
    """One line a score, of answers that all differ."""
    fields = {"group_size": len(scores)} | changed
    return [
        line(task_id, index, **({"response": f"answer {index}", "score": score} | fields))
        for index, score in enumerate(scores)
    ]


def write_log(logs_dir: Path, lines: Sequence[bytes]) -> Path:
    logs_dir.mkdir(parents=True, exist_ok=True)
    with (logs_dir / "agent_interactions.jsonl").open("ab") as log:
        log.write(b"".join(lines))
    return logs_dir


def feedback(task_id: str, sample: int, score: float, **changed: Any) -> bytes:
    fields: dict[str, Any] = {"agent_id": "small", "adapter_version": "v1.0.0", "timestamp": AT} | changed
    name = f"{task_id}-{sample}-{score}"
    line = LoggedFeedback(feedback_id=name, task_id=task_id, sample=sample, score=score, **fields)
    return line.encode() + b"\n"


def give_feedback(logs: Path, lines: list[bytes]) -> None:
    with (logs / "feedback.jsonl").open("ab") as log:
        log.write(b"".join(lines))
