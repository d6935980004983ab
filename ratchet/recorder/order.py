"""Order that `ratchet record` hands to the process it becomes (`python -m ratchet.recorder`): task, command, fleet."""

from __future__ import annotations

import json
from hashlib import sha256

from pydantic import BaseModel, ConfigDict

from schemas.messages.base import Identifier
from schemas.messages.task import Prompt, Task

INPUT = "{input}"
"""In an argument of the command, the task's input stands for it."""
LONGEST_ARGUMENT = 120_000
"""Bytes; Linux takes none that is much longer."""


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
    """On the wire: of the one who records that task. By its id, so that the same command typed again goes on with it.

    What a queue's name can't hold of an id is left out; a sum of the whole keeps two apart.
    """
    return f"{namespace}{queue_name(task_id)}"


def queue_name(task_id: str) -> str:
    """Without the namespace."""
    readable = "".join(letter for letter in task_id if letter.isascii() and (letter.isalnum() or letter in "-_."))
    return f"reply.record.{readable[:80]}.{sha256(task_id.encode()).hexdigest()[:12]}"


def as_text(prompt: Prompt) -> str:
    """Chat messages as a JSON array of them."""
    if isinstance(prompt, str):
        return prompt
    return json.dumps([{"role": one.role, "content": one.content} for one in prompt], ensure_ascii=False)


def unfit_argument(command: tuple[str, ...], prompt: Prompt) -> str | None:
    """Say why the input can't stand in an argument of the command; None where it can, or need not."""
    text = as_text(prompt)
    if not any(INPUT in part for part in command):
        return None
    if "\0" in text:
        return f"the input has a NUL in it, so it can't stand for {INPUT}: the program may read it from its stdin"
    if len(text.encode(errors="replace")) > LONGEST_ARGUMENT:
        return f"the input is too long to stand for {INPUT} in an argument: the program may read it from its stdin"
    return None
