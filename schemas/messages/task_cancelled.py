"""TaskCancelled: a task was cancelled, so whoever works on it may stop.

For whoever listens just then. One that misses it works in vain: what it sends is logged as cancelled and taught to
nobody.
"""

from __future__ import annotations

from typing import ClassVar

from schemas.messages.base import AgentId, Identifier, Message, Metadata


class TaskCancelled(Message):
    """Broadcast to the agent and the runners that may have the task's Work, once its end is in the log."""

    TYPE: ClassVar[str] = "task_cancelled.v1"

    task_id: Identifier
    agent_id: AgentId
    metadata: Metadata = Metadata()
