"""What a real demo came to: the held-out share that is exactly right, before and after, and examples. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from demos.real.exact import is_exact
from demos.real.tasks import FAMILIES, RealTask
from demos.story import DemoStory
from ratchet.experiments.gain import Gain, gain
from ratchet.logs.rows import AnswerRow

PROMISED = 0.75
"""Share of single answers to held-out tasks that is exactly right at the end."""
EXAMPLES_SHOWN = 4
"""Of each family: the first held-out tasks, whatever became of them."""
ALL = "all"

Right = Mapping[str, Sequence[float]]
"""By the text of a task, 1.0 for each answer that is exactly right and 0.0 for each other."""


@dataclass(frozen=True, slots=True)
class Example:
    """A held-out task, and the first answer of either version."""

    family: str
    text: str
    answer: str
    before: str
    after: str

    @property
    def right(self) -> tuple[bool, bool]:
        return is_exact(self.before, self.answer), is_exact(self.after, self.answer)

    def as_dict(self) -> dict[str, Any]:
        before, after = self.right
        return asdict(self) | {"right_before": before, "right_after": after}


@dataclass(frozen=True, slots=True, kw_only=True)
class RealStory(DemoStory):
    """`gains`: by family, and of all. `seed`: the tasks'."""

    seed: int
    temperature: float
    model: str
    gains: Mapping[str, Gain]
    examples: tuple[Example, ...]

    def _own_faults(self) -> Iterator[str]:
        after = self.gains[ALL].after
        if not self.gains[ALL].significant:
            yield "the hidden verifier does not confirm a gain: the interval of the difference reaches 0"
        if after.mean < PROMISED:
            yield f"{after.mean:.2f} of the held-out answers are exactly right, less than {PROMISED}"

    def _own_figures(self) -> Mapping[str, Any]:
        return {
            "seed": self.seed,
            "model": self.model,
            "temperature": self.temperature,
            "held_out": {name: found.as_dict() for name, found in self.gains.items()},
            "examples": [one.as_dict() for one in self.examples],
        }


def right_answers(tasks: Mapping[str, RealTask], rows: Sequence[AnswerRow]) -> dict[str, list[float]]:
    """`tasks` by id, `rows` the log's lines of them. An answer that was cut, or is none, is wrong."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.sample is not None:
            task = tasks[row.task_id]
            found.setdefault(task.text, []).append(float(is_exact(row.response or "", task.answer)))
    return found


def gains_of(tasks: Sequence[RealTask], before: Right, after: Right) -> dict[str, Gain]:
    """By family, and of all together."""
    groups = {str(family): [task.text for task in tasks if task.family == family] for family in FAMILIES}
    groups[ALL] = [task.text for task in tasks]
    return {
        name: gain({text: before.get(text, ()) for text in texts}, {text: after.get(text, ()) for text in texts})
        for name, texts in groups.items()
    }


def examples_of(tasks: Sequence[RealTask], before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Example, ...]:
    """The first tasks of each family; `before` and `after` have the first answer by text."""
    chosen = [task for family in FAMILIES for task in [t for t in tasks if t.family == family][:EXAMPLES_SHOWN]]
    return tuple(
        Example(task.family, task.text, task.answer, before.get(task.text, ""), after.get(task.text, ""))
        for task in chosen
    )


def first_answers(tasks: Mapping[str, RealTask], rows: Sequence[AnswerRow]) -> dict[str, str]:
    """By the task's text, the answer to its first sample."""
    return {tasks[row.task_id].text: row.response or "" for row in rows if row.sample == 0}
