"""A file of tasks as a trial: what its scorer can grade, and which tasks teach or measure. Pure."""

from __future__ import annotations

import json
import random
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from ratchet.experiments.gain import Gain, format_gain, gain
from schemas.messages.task import Task
from services.cli.eval.task_set import SetTask
from services.cli.fleet.options import FleetOptions
from services.cli.terminal import UsageError, table

LEAST_TAUGHT, LEAST_HELD_OUT = 16, 8
"""A training takes eight demonstrations or groups at least, and leaves some out to look at while it runs."""
MOST_HELD_OUT = 64
GROUP = 8
"""Answers to a task that teaches where references don't."""
DEFAULT_MAX_TOKENS, ENDING_TOKENS = 256, 8
FULL_MARKS = 1.0
MOST_REASONS = 5


@dataclass(frozen=True, slots=True)
class Grading:
    """The scorer's verdict on the references, scored as answers. `failing`: how many, by what was said of them."""

    scorer: str
    tasks: int
    with_reference: int
    full_marks: frozenset[str]
    """Sums of the inputs of these tasks."""
    failing: Mapping[str, int]
    comparable: bool
    """Tells whether a reference of this scorer is itself an answer: a number or a pattern is none."""

    def sentences(self) -> list[str]:
        lines = [f"{self.with_reference} of {self.tasks} tasks have a reference"]
        if not self.with_reference:
            return [*lines, f"{self.scorer} needs none, so the model learns from the scores of its own answers"]
        if not self.comparable:
            return [*lines, f"{self.scorer} takes a reference for no answer, so references grade and don't teach"]
        lines.append(f"{len(self.full_marks)} of these earn full marks from {self.scorer} as answers: they can teach")
        return [*lines, *(f"{count} don't: {why}" for why, count in list(self.failing.items())[:MOST_REASONS])]


@dataclass(frozen=True, slots=True)
class Trial:
    """Two parts of a file without a common input. `samples`: answers to each task that teaches."""

    taught: tuple[SetTask, ...]
    held_out: tuple[SetTask, ...]
    samples: int
    by_references: bool
    """Tells whether references teach; else the model learns from groups of its own answers."""


def choose_scorer(tasks: Sequence[SetTask], named: str | None) -> str:
    """The scorer that was named or, by the references, verifier:json or verifier:normalised.

    Raises UsageError where nothing says which answer is right.
    """
    references = [one.task.reference for one in tasks if one.task.reference is not None]
    if not references and (named is None or named.startswith("verifier")):
        raise UsageError(
            'no task has a reference, so nothing says which answer is right: add "reference" to the lines of the file, '
            "or name a scorer that needs none, such as --scorer judge:absolute (docs/your-own-tasks.md)"
        )
    return named or ("verifier:json" if all(map(_is_json_object, references)) else "verifier:normalised")


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except ValueError:
        return False


def grading_of(
    scorer: str, tasks: Sequence[SetTask], comparable: bool, scores: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Grading:
    """`scores`: by the sum of the input, those of the reference."""
    failing, passing = Counter[str](), set[str]()
    for sha256, (score, *_) in scores.items():
        if score["score"] is not None and score["score"] >= FULL_MARKS:
            passing.add(sha256)
        else:
            failing[score["reason"] or f"scored {score['score']:.2f}"] += 1
    with_reference = sum(one.task.reference is not None for one in tasks)
    full_marks = frozenset(passing) if comparable else frozenset()
    return Grading(scorer, len(tasks), with_reference, full_marks, dict(failing.most_common()), comparable)


def plan_trial(tasks: Sequence[SetTask], grading: Grading, held_out: int | None, seed: int) -> Trial:
    """Draw the held-out part; of a file with references, tasks without one are left out.

    Raises UsageError for too few tasks.
    """
    usable = [one for one in tasks if one.task.reference is not None] if grading.with_reference else list(tasks)
    count = held_out or min(MOST_HELD_OUT, max(LEAST_HELD_OUT, len(usable) // 4))
    if len(usable) - count < LEAST_TAUGHT:
        raise UsageError(
            f"{len(usable)} different tasks can be graded: {count} to measure leave {max(0, len(usable) - count)} to "
            f"learn from, and {LEAST_TAUGHT} are the least. Add tasks; a hundred is a good start"
        )
    drawn = random.Random(seed).sample(usable, len(usable))
    taught = tuple(drawn[count:])
    by_references = sum(one.sha256 in grading.full_marks for one in taught) >= LEAST_TAUGHT
    return Trial(taught, tuple(drawn[:count]), 1 if by_references else GROUP, by_references)


def choose_max_tokens(tasks: Sequence[Task]) -> int:
    """Enough for the longest reference, where there are any: no token is shorter than a byte."""
    longest = max((len(task.reference.encode()) for task in tasks if task.reference is not None), default=None)
    return DEFAULT_MAX_TOKENS if longest is None else min(DEFAULT_MAX_TOKENS, longest + ENDING_TOKENS)


Worths = Mapping[str, Sequence[float]]
"""The worth of each answer to a held-out task, by the task."""


@dataclass(frozen=True, slots=True)
class TrialReport:
    """`after`: None where the training published nothing, for the reason that its outcome gives."""

    file: Path
    options: FleetOptions
    max_tokens: int
    grading: Grading
    trial: Trial
    samples: int
    before: Worths
    after: Worths | None
    outcome: Mapping[str, Any]
    seconds: Mapping[str, float]
    settings_file: Path

    @property
    def gains(self) -> dict[str, Gain]:
        """Hold the base model against itself where there is no `after`."""
        after = self.before if self.after is None else self.after
        exact = (
            {task: [float(one >= FULL_MARKS) for one in of] for task, of in side.items()}
            for side in (self.before, after)
        )
        return {"exactly right": gain(*exact), "mean score": gain(self.before, after)}

    @property
    def verdict(self) -> str:
        if self.after is None:
            return f"Nothing was learned: {self.outcome['reason']}"
        found = self.gains["mean score"]
        if found.significant:
            return "It learned: the interval of the difference lies above 0."
        if found.difference.high < 0:
            return "It got worse: a fleet would not promote this version."
        return "No difference is proved: the interval reaches 0."

    def next_steps(self) -> Iterator[str]:
        if doubtful := self.outcome["counts"].get("demonstrations.doubtful", 0):
            yield f"{doubtful} references look wrong: mend them at their source (docs/your-own-tasks.md)"
        if self.after is None or not self.gains["mean score"].significant:
            yield "More tasks help most; then a bigger model, or a scorer that gives part marks (--scorer)"
        yield f"A fleet with these settings: {self.command}"
        if self.after is not None:
            yield f"To have it begin with what was learned here, type before: . {shlex.quote(str(self.settings_file))}"
        yield f"Its tasks: ratchet submit --file {shlex.quote(str(self.file))}"

    @property
    def looks(self) -> str | None:
        """A sentence about the texts that the training looked at and did not teach; None where there were none."""
        metrics = self.outcome["metrics"]
        if (texts := metrics.get("held_out_texts")) is None:
            return None
        return (
            f"While training, {texts} texts that it did not teach were looked at: {metrics['held_out_before']:.3f} "
            f"before, {metrics['held_out_best']:.3f} at the best step, {metrics['held_out_best_step']} of "
            f"{metrics['held_out_ended']}, which was kept."
        )

    @property
    def command(self) -> str:
        options = self.options
        return f"RATCHET_MAX_TOKENS={self.max_tokens} " + shlex.join(
            ["ratchet", "up", "--model", options.model, "--scorer", options.scorer]
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "file": str(self.file),
            "model": self.options.model,
            "scorer": self.options.scorer,
            "references": asdict(self.grading) | {"full_marks": len(self.grading.full_marks)},
            "taught": len(self.trial.taught),
            "taught_by": "references" if self.trial.by_references else "groups",
            "held_out": len(self.trial.held_out),
            "samples": self.samples,
            "measured": {name: found.as_dict() for name, found in self.gains.items()},
            "trained": self.after is not None,
            "training": self.outcome,
            "seconds": dict(self.seconds),
            "verdict": self.verdict,
            "next": list(self.next_steps()),
        }


def render_trial(report: TrialReport) -> Group:
    shown = table("", f"{report.options.model}, as it is", "after one training", "difference")
    shown.collapse_padding = True  # so that a row fits into 80 columns
    for name, found in report.gains.items():
        before, after, difference = format_gain(found)
        shown.add_row(name, before, *(["–", "–"] if report.after is None else [after, difference]))
    held_out, taught = len(report.trial.held_out), len(report.trial.taught)
    by = "their references" if report.trial.by_references else f"groups of {report.trial.samples} answers"
    note = (
        f"{held_out} held-out tasks × {report.samples} answers at temperature 1, 95 % intervals over tasks, paired. "
        f"Trained once on {taught} other tasks, by {by}."
    )
    times = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in report.seconds.items())
    whole = sum(report.seconds.values())
    return Group(
        Text("\nHeld-out tasks, before and after", style="bold"),
        shown,
        Text(note, style="dim"),
        *([Text(report.looks, style="dim")] if report.looks else []),
        Text(f"Time: {whole:.0f} s ({times})"),
        Text(f"\n{report.verdict}", style="bold"),
        *map(Text, report.next_steps()),
    )
