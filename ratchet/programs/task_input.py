"""The ways in which a program is given a task's input: as text, and where it stands in an argument of its command."""

from __future__ import annotations

import json

from schemas.messages.task import Prompt

INPUT = "{input}"
"""Placeholder of the task's input in an argument of a command."""
LONGEST_ARGUMENT = 120_000
"""Bytes. Linux takes none that is much longer."""


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
