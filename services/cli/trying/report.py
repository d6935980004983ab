"""The outcome of a trial as a table and as JSON. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from ratchet.experiments.gain import Gain, format_gain, gain
from services.cli.fleet.options import FleetOptions
from services.cli.terminal import table
from services.cli.trying.trial import FULL_MARKS, Grading, Trial

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
        yield f"With what was learned here, in the same shell first: . {shlex.quote(str(self.settings_file))}"
        yield f"Its tasks: ratchet submit --file {shlex.quote(str(self.file))}"

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
    return Group(
        Text("\nHeld-out tasks, before and after", style="bold"),
        shown,
        Text(note, style="dim"),
        Text(f"Time: {times}"),
        Text(f"\n{report.verdict}", style="bold"),
        *map(Text, report.next_steps()),
    )
