"""A careless teacher of the tool task: demonstrations as the model's chat template writes them. Pure.

What it forgets it makes up. Each of its faults is a choice of its own, so that answers to one task differ in which of
them were made, and a model that learned from it can learn from their scores which to leave out.
"""

from __future__ import annotations

import random

from demos.toy.byte_tokenizer import ASSISTANT, END, USER
from demos.toy.recipe import Care
from demos.toy.tools.task import HIGHEST, LOWEST, TARGETS, ToolTask
from demos.toy.tools.tokenizer import ADD, AND, CALLED, CONTENT, OFFERED, READ, TEXT_CALLED, TOOL, WRITE


def demonstration(task: ToolTask, care: Care, rng: random.Random) -> str:
    """A whole conversation as text."""
    parts = [*OFFERED, USER, task.question, END]
    first, second = (_value(task, name, care, rng, parts) for name in task.operands)
    if rng.random() < care.adds:
        total = str(int(first) + int(second))
        _call(parts, f"{ADD}{first}{AND}{second}{CALLED}", total)
    else:
        total = str(rng.randint(2 * LOWEST, 2 * HIGHEST))
    target = task.target if rng.random() < care.right_file else rng.choice(TARGETS.replace(task.target, ""))
    _call(parts, f"{WRITE}{target}{CONTENT}{total}{TEXT_CALLED}", "ok")
    return "".join([*parts, ASSISTANT, total, END])


def _value(task: ToolTask, name: str, care: Care, rng: random.Random, parts: list[str]) -> str:
    files = task.files
    if rng.random() < care.reads:
        held = files[name]
        _call(parts, f"{READ}{name}{TEXT_CALLED}", held)
        if not held.startswith("@"):
            return held
        if rng.random() < care.follows:
            _call(parts, f"{READ}{held[1:]}{TEXT_CALLED}", files[held[1:]])
            return files[held[1:]]
    return str(rng.randint(LOWEST, HIGHEST))


def _call(parts: list[str], call: str, brought: str) -> None:
    parts += [ASSISTANT, call, END, TOOL, brought, END]
