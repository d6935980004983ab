"""The demo of `ratchet demo --real`: a real model turns mail orders and dates into JSON.

The settings are those of any fleet but for what is named here; what a promotion must prove is as in any fleet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import jsonschema_rs
from rich.console import RenderableType

from demos.books import Measured
from demos.demo import SOON, Demo, Sizes
from demos.real.exact import is_exact
from demos.real.page import RESULT, picture, result_page
from demos.real.tasks import FAMILIES, Family, RealTask, distinct_tasks, real_tasks
from demos.story import DemoTurn, Example, Story, gain_faults
from demos.story_view import examples_table, gains_table, heading
from demos.time_left import Pace
from ratchet.experiments.gain import Gain, gain
from ratchet.files.atomic_file import replace_file
from ratchet.logs.rows import AnswerRow
from ratchet.models.fetch import fetch
from ratchet.models.known import KNOWN
from schemas.messages.task import AnswerFormat
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.own_fleet import FleetPlace

SIZES = Sizes(tasks=64, samples=4, turns=2, groups=160, no_turn_after=540.0, timeout=600.0)
MODEL = "smollm2"
TITLE = KNOWN[MODEL].title.partition(":")[0]
TEMPERATURE = 0.5
MAX_TOKENS: dict[Family, int] = {"order": 42, "date": 20}
"""A third more than a right answer has."""
GROUP = 5
GOLDEN_TASKS = 16
TRAINING: Mapping[str, float | int] = {"learning_rate": 1e-3, "batch": 32, "epochs": 3}
PROMISED = 0.75
"""Share of single answers to held-out tasks that is exactly right at the end."""
EXAMPLES_SHOWN = 4
"""The first held-out tasks, whatever became of them."""
ALL = "all"
NAMES = {"order": "orders", "date": "dates", ALL: ALL}


def settings(seed: int, *, references: bool = False) -> dict[str, str]:
    """Return the fleet's settings. Users wait while the trainer works; it and the agent take the cores that are free.

    With `references` the references of users' tasks teach, by the trainer's own defaults; without them the fleet shows
    what the model learns from its own answers.
    """
    from_answers = {
        "RATCHET_TRAINER_HYPERPARAMETERS": json.dumps(dict(TRAINING)),
        "RATCHET_DEMONSTRATIONS": "",
    }
    return {
        **SOON,
        "RATCHET_TEMPERATURE": str(TEMPERATURE),
        "RATCHET_MAX_TOKENS": str(max(MAX_TOKENS.values())),
        "RATCHET_AGENT_SEED": str(seed),
        "RATCHET_EXPERIMENT_MAX_UNITS": "500",
        "RATCHET_WATCH_SHARE": "0",
    } | ({} if references else from_answers)


@dataclass(frozen=True, kw_only=True)
class RealDemo(Demo[RealTask]):
    folder, prefix, source = "demo-real", "real", "ratchet demo --real"
    golden_samples = 2
    proof_samples = 2  # a task is one observation, however many answers it has
    good_enough = 0.85
    hidden = ("reference",)
    training_s = 3600.0
    quiet_s = 20.0
    next_command = "ratchet submit --file tasks.jsonl"

    references: bool = False
    structured: bool = False
    """Each answer is held to the schema that it is scored by."""
    answers: int = GROUP

    @property
    def group(self) -> int:
        return self.answers

    @property
    def pace(self) -> Pace:
        return Pace(start_s=30.0, answer_s=0.25, trained_s=0.3, proved_s=200.0)

    def model(self, models: Path, say: Callable[[str], None], heading: Callable[[str], None]) -> str:
        fetch(KNOWN[MODEL], models, say)
        return MODEL

    def options(self, options: FleetOptions, place: FleetPlace) -> FleetOptions:
        return replace(options, scorer="verifier:json")

    def settings(self, place: FleetPlace) -> dict[str, str]:
        return settings(self.seed, references=self.references)

    def held_out(self) -> list[RealTask]:
        return distinct_tasks("held_out", self.seed, self.sizes.tasks)

    def golden(self) -> list[RealTask]:
        """Return tasks of the part that is asked live."""
        return distinct_tasks("live", -self.seed - 1, GOLDEN_TASKS)

    def learning(self) -> Iterator[RealTask]:
        return real_tasks("train", self.seed)

    def live(self) -> Iterator[RealTask]:
        return real_tasks("live", self.seed)

    def fields(self, question: RealTask) -> dict[str, Any]:
        as_schema = AnswerFormat(type="json_schema", json_schema=json.loads(question.criteria))
        return {
            "input": question.input,
            "reference": question.answer,
            "criteria": question.criteria,
            "max_tokens": MAX_TOKENS[question.family],
            "task_type": question.family,
        } | ({"format": as_schema} if self.structured else {})

    def is_right(self, question: RealTask, row: AnswerRow) -> bool:
        """Tell; an answer that was cut, or is none, is wrong."""
        return is_exact(row.response or "", question.answer)

    def label(self, question: RealTask) -> str:
        return question.text

    def figures(self, measured: Mapping[str, Measured[RealTask]], turns: Sequence[DemoTurn], adapters: Path) -> Figures:
        before, after = measured["before"], measured["after"]
        asked = list(before.tasks.values())
        chosen = chain(*([one for one in asked if one.family == family][:EXAMPLES_SHOWN] for family in FAMILIES))
        gains, examples = self.gains(before, after), self.examples(chosen, before, after)
        return Figures(self.seed, gains, examples, valid_share(before, after) if self.structured else None)

    def gains(self, before: Measured[RealTask], after: Measured[RealTask]) -> dict[str, Gain]:
        """Return the gain of each family, and of all together."""
        right = self.right_answers(before), self.right_answers(after)
        groups: dict[str, list[str]] = {family: [] for family in FAMILIES} | {ALL: []}
        for task in before.tasks.values():
            groups[task.family].append(task.text)
            groups[ALL].append(task.text)
        return {
            name: gain(*({text: one.get(text, []) for text in texts} for one in right))
            for name, texts in groups.items()
        }

    def write_pages(self, story: Story, place: FleetPlace) -> Path:
        result = place.root / RESULT
        figures = story.figures
        assert isinstance(figures, Figures)
        named = {NAMES[name]: found for name, found in figures.gains.items()}
        drawn = picture(TITLE, named, story, self.seed)
        replace_file(result, result_page(drawn, TITLE, story).encode())
        replace_file(result.with_suffix(".svg"), drawn.encode())
        return result

    def last_words(self, place: FleetPlace, *, stays: bool) -> Iterable[str]:
        return (f"\nBefore and after, with a picture: {place.root / RESULT}",)


def valid_share(*parts: Measured[RealTask]) -> float:
    """Return the share of valid answers among those that were not cut."""
    answers = [(one, row) for part in parts for one, row in part.samples() if row.finish_reason != "length"]
    return fmean(_is_valid(row.response or "", one.criteria) for one, row in answers) if answers else 1.0


def _is_valid(answer: str, schema: str) -> bool:
    try:
        return jsonschema_rs.is_valid(json.loads(schema), json.loads(answer))
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Figures:
    """`gains`: by family, and of all. `valid`: where answers are held to schemas, the share that is an object as its
    schema has it, of those that were not cut."""

    seed: int
    gains: Mapping[str, Gain]
    examples: tuple[Example[RealTask], ...]
    valid: float | None = None

    def faults(self) -> Iterator[str]:
        yield from gain_faults(self.gains[ALL], PROMISED, "answers are exactly right")
        if self.valid is not None and self.valid < 1.0:
            yield f"{self.valid:.3f} of the answers that were not cut are as their schema has them, not all"

    def as_dict(self) -> Mapping[str, Any]:
        return {
            "seed": self.seed,
            "model": TITLE,
            "temperature": TEMPERATURE,
            "valid": self.valid,
            "held_out": {name: found.as_dict() for name, found in self.gains.items()},
            "examples": [
                {
                    "family": one.question.family,
                    "text": one.label,
                    "answer": one.question.answer,
                    "before": one.answers[0],
                    "after": one.answers[1],
                    "right_before": one.right[0],
                    "right_after": one.right[1],
                }
                for one in self.examples
            ],
        }

    def tables(self, primary: str) -> Sequence[RenderableType]:
        note = (
            f"Share of single answers at temperature {TEMPERATURE:g} that a verifier which nobody in the fleet has "
            f"finds exactly right. {self.gains[ALL].before.tasks} tasks whose sentences and values no training saw, "
            "the same prompts before and after; means paired by task, normal approximation."
        )
        if self.valid is not None:
            note += f" {self.valid:.3f} of the answers that were not cut are as their schema has them."
        return (
            heading("Held-out tasks exactly right, before and after (95 % confidence interval)"),
            gains_table(primary, {NAMES[name]: found for name, found in self.gains.items()}, note),
            heading("The first held-out tasks, and one answer of either version"),
            examples_table(self.examples),
        )
