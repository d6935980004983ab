"""The hidden verifier: whether the files are as they must be in the end, by rules of its own. Only the report asks it.

Nobody in the fleet has it: training, the gate and the experiments go by the graded scorer, `verifier:json`.
"""

from __future__ import annotations

import json

from demos.toy.tools.task import ToolTask


def is_done(task: ToolTask, answer: str) -> bool:
    """The file asked for holds the sum, no other file changed, and the sum is what was said, nothing more.

    It adds up the files themselves, from the task's text; what the task takes for right it does not ask.
    """
    try:
        told = json.loads(answer)
        changed, said = dict(zip(told["files"], told["hold"], strict=True)), told["said"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return False
    before = task.files
    asked, _, target = task.question.partition(">")
    total = 0
    for name in asked.split("+"):
        held = before[name]
        while held[:1] == "@":
            held = before[held[1:]]
        total += int(held)
    return {**before, **changed} == {**before, target: f"{total}"} and said == f"{total}"
