"""Order that `ratchet record` hands to the process it becomes (`python -m ratchet.rollouts`): task, command, fleet."""

from __future__ import annotations

from hashlib import sha256

from pydantic import BaseModel, ConfigDict

from schemas.messages.base import Identifier
from schemas.messages.task import Task


class RecordOrder(BaseModel):
    """`agent_urls`: of the replicas that answer. `tokenizer`: folder or hub name, if not what the agent says it is.
    `name`: what the program is called in the log. `time_limit_s`: of each run, within the task's deadline. `as_json`:
    the Result is written as JSON."""

    model_config = ConfigDict(frozen=True)

    task: Task
    command: tuple[str, ...]
    name: Identifier | None = None
    amqp_url: str
    namespace: str = ""
    agent_urls: tuple[str, ...]
    token: str | None = None
    tokenizer: str | None = None
    time_limit_s: float | None = None
    as_json: bool = False


def own_queue(task_id: str, namespace: str) -> str:
    """Return the name on the broker of a task's queue of replies: the same command typed again goes on with it.

    What a queue's name can't hold of an id is left out; a sum of the whole keeps two apart.
    """
    return f"{namespace}{queue_name(task_id)}"


def queue_name(task_id: str) -> str:
    """Return the name without the namespace."""
    readable = "".join(letter for letter in task_id if letter.isascii() and (letter.isalnum() or letter in "-_."))
    return f"reply.record.{readable[:80]}.{sha256(task_id.encode()).hexdigest()[:12]}"
