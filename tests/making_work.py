"""Work of the agent `small`, as an orchestrator that has just admitted its task sends it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from schemas.messages.work import Arm, Sampling, Work


def work(task_id: str, sampling: Sampling, **given: Any) -> Work:
    now = datetime.now(UTC)
    fields: dict[str, Any] = {
        "input": "sort: ba",
        "agent_id": "small",
        "deadline": now + timedelta(minutes=5),
        "admitted_at": now,
        "arm": Arm(sequence=0),
        "sampling": sampling,
    }
    return Work(task_id=task_id, **(fields | given))
