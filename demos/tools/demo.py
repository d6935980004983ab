"""The demo of `ratchet demo --tools`: a tiny model learns to use tools, over several turns of a conversation.

The settings are those of any fleet but for what is named here; what a promotion must prove is as in any fleet.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from demos.books import Measured
from demos.demo import SOON, Demo, Sizes
from demos.story import DemoTurn, Example, gain_faults
from demos.story_view import examples_table, gains_table, heading
from demos.time_left import Pace
from demos.tools import in_sandboxes
from demos.tools.agent import AGENT, tool_agent
from demos.toy.tools.task import Part, ToolTask, is_done, tool_task
from ratchet.adapters.manifest import TRAINING_REPORT
from ratchet.experiments.gain import Estimate, Gain, estimate, gain
from ratchet.logs.rows import AnswerRow
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.own_fleet import FleetPlace
from services.cli.models import make_models
from services.cli.terminal import table

SIZES = Sizes(tasks=150, samples=2, turns=3, groups=128, no_turn_after=math.inf, timeout=180.0)
MODEL = "tool-user"
GROUP = 8
MAX_TOKENS = 12
"""Tokens of one answer of the model: twice what a call of a tool has."""
GOLDEN_TASKS = 24
TRAINING: Mapping[str, float | int] = {"learning_rate": 2e-3, "epochs": 6}
PROOF_TASKS = 350
"""Rollouts that a live test takes, the gate's among them."""
PROMISED = 0.80
"""Share of single rollouts of held-out tasks that are done at the end."""
BLANKED = 0.02
"""The most of them that may be done where tools return nothing: more would be done without tools."""
LARGEST_GAP = 1e-4
"""Nats a token between what was logged and what the trainer finds before its first step."""
EXAMPLES_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class ToolsDemo(Demo[ToolTask]):
    folder, prefix, source = "demo-tools", "tools", "ratchet demo --tools"
    golden_samples = 2
    proof_samples = 1  # a task is one observation, however many rollouts it has
    good_enough = 0.85
    next_command = "ratchet log show TASK"

    sandboxed: bool = False

    @property
    def group(self) -> int:
        return GROUP

    @property
    def queue(self) -> str | None:
        """Return where the Work of its agent comes; None where the fleet's runner runs it, in sandboxes."""
        return None if self.sandboxed else f"reply.tool-agent.{self.run}"

    @property
    def pace(self) -> Pace:
        usual = Pace(start_s=60.0, answer_s=0.02, training_start_s=8.0, trained_s=0.01, proved_s=15.0)
        if not self.sandboxed:
            return usual
        slower = in_sandboxes.ROLLOUT_S - usual.answer_s
        return replace(usual, answer_s=in_sandboxes.ROLLOUT_S, proved_s=usual.proved_s + PROOF_TASKS * slower)

    def model(self, models: Path, say: Callable[[str], None], heading: Callable[[str], None]) -> str:
        heading("The model that uses tools, made once")
        make_models(models, say, only=MODEL)
        return str(models / MODEL)

    def options(self, options: FleetOptions, place: FleetPlace) -> FleetOptions:
        if not self.sandboxed:
            return replace(options, scorer="verifier:json")
        return replace(options, scorer=in_sandboxes.SCORER, programs=str(place.root / in_sandboxes.PROGRAMS))

    def settings(self, place: FleetPlace) -> dict[str, str]:
        """Return the settings. An agent that reads what it needs takes more calls than one that makes it up: longer
        is what is wanted."""
        return {
            **SOON,
            "RATCHET_MAX_TOKENS": str(MAX_TOKENS),
            "RATCHET_AGENT_SEED": str(self.seed),
            "RATCHET_TRAINER_HYPERPARAMETERS": json.dumps(dict(TRAINING)),
            "RATCHET_EXPERIMENT_MAX_UNITS": "2000",
            "RATCHET_LENGTH_LIMIT": "1.5",
            "RATCHET_WATCH_SHARE": "0",
        } | (in_sandboxes.settings(place.root) if self.sandboxed else {})

    def files(self) -> Mapping[str, str]:
        return {in_sandboxes.PROGRAMS: in_sandboxes.programs(AGENT)} if self.sandboxed else {}

    def answering(self, access: FleetAccess, place: FleetPlace) -> AbstractContextManager[None]:
        return tool_agent(access, self.queue, place.root / "log" / "tool-agent.log") if self.queue else nullcontext()

    def held_out(self) -> list[ToolTask]:
        return self._distinct("held_out", "held-out", self.sizes.tasks)

    def golden(self) -> list[ToolTask]:
        return self._distinct("train", "golden", GOLDEN_TASKS)

    def learning(self) -> Iterator[ToolTask]:
        return _draw_tasks("train", f"users {self.seed}")

    def live(self) -> Iterator[ToolTask]:
        return _draw_tasks("train", f"live {self.seed}")

    def also_measured(self, held_out: Sequence[ToolTask]) -> dict[str, Sequence[ToolTask]]:
        """Return the same tasks with tools that bring nothing."""
        return {"blanked": [replace(task, blanked=True) for task in held_out]}

    def _distinct(self, part: Part, purpose: str, count: int) -> list[ToolTask]:
        drawn: dict[int, ToolTask] = {}
        for task in _draw_tasks(part, f"{purpose} {self.seed}"):
            drawn[task.workspace] = task
            if len(drawn) == count:
                break
        return list(drawn.values())

    def fields(self, question: ToolTask) -> dict[str, Any]:
        graded = in_sandboxes.message_fields(question) if self.sandboxed else {"reference": question.answer}
        on_the_wire = self.namespace + self.queue if self.queue else None
        return {"input": question.input, "task_type": "tools", "work_to": on_the_wire, **graded}

    def is_right(self, question: ToolTask, row: AnswerRow) -> bool:
        return is_done(question, self.answer(row))

    def answer(self, row: AnswerRow) -> str:
        return in_sandboxes.outcome_of(row)

    def label(self, question: ToolTask) -> str:
        files = ", ".join(f"{name} {held}" for name, held in question.files.items())
        return f"{question.question}  ({files})"

    def figures(self, measured: Mapping[str, Measured[ToolTask]], turns: Sequence[DemoTurn], adapters: Path) -> Figures:
        before, after = measured["before"], measured["after"]
        guessed = self.right_answers(measured["blanked"])
        return Figures(
            seed=self.seed,
            sandboxed=self.sandboxed,
            gain=gain(self.right_answers(before), self.right_answers(after)),
            held_out="workspaces that no training saw, at temperature 1",
            blanked=estimate([share for shares in guessed.values() for share in shares]),
            conversations=conversations_of(turns, adapters),
            examples=self.examples(list(before.tasks.values())[:EXAMPLES_SHOWN], before, after),
        )

    def last_words(self, place: FleetPlace, *, stays: bool) -> Iterable[str]:
        if stays:
            yield "Its agent ended with this command: what you submit is answered by the model alone, without tools."


def _draw_tasks(part: Part, seed: str) -> Iterator[ToolTask]:
    rng = random.Random(seed)
    while True:
        yield tool_task(rng, part)


@dataclass(frozen=True, slots=True)
class Conversations:
    """The conversations that a version was trained on, as its training report has them.

    `gap`: before the first step, between logged and computed log-probabilities, in nats a token. `sampled_tokens` are
    the `trained_tokens` and those `without_advantage_tokens`.
    """

    version: str
    rollouts: int
    segments: int
    breaks: Mapping[str, int]
    sampled_tokens: int
    trained_tokens: int
    without_advantage_tokens: int
    gap: float

    @classmethod
    def from_report(cls, version: str, report: Mapping[str, Any]) -> Conversations:
        """Raises KeyError for a report of a training that had none."""
        found = report["data"]["conversations"]
        names = ("rollouts", "segments", "breaks", "sampled_tokens", "trained_tokens", "without_advantage_tokens")
        gap = max(report["parent_match"]["gap"] or 0.0, report["steps"][0]["gap"])
        return cls(version, **{name: found[name] for name in names}, gap=gap)

    @property
    def fault(self) -> str | None:
        if self.gap > LARGEST_GAP:
            return f"{self.version} began {self.gap:.1e} nats a token from what was logged, more than {LARGEST_GAP:g}"
        if self.sampled_tokens != self.trained_tokens + self.without_advantage_tokens:
            return f"of {self.sampled_tokens:,} tokens sampled {self.version} accounts for {self.trained_tokens:,} only"
        return None


def conversations_of(turns: Iterable[DemoTurn], adapters: Path) -> tuple[Conversations, ...]:
    """Read what each turn's version was trained on."""
    reports = {turn.version: (adapters / turn.version / TRAINING_REPORT).read_bytes() for turn in turns}
    return tuple(Conversations.from_report(name, json.loads(text)) for name, text in reports.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """`gain`: of single rollouts, by the hidden verifier, of which `promised` is the least in the end; `blanked`: the
    primary's where tools bring nothing, if that was measured. `outside`: rollouts of the sandboxed agent that left no
    artifact of a sandbox."""

    seed: int
    sandboxed: bool
    gain: Gain
    conversations: tuple[Conversations, ...]
    examples: tuple[Example[Any], ...]
    held_out: str
    """Says what no training saw, and at which temperature."""
    promised: float = PROMISED
    blanked: Estimate | None = None
    outside: int = 0

    def faults(self) -> Iterator[str]:
        yield from gain_faults(self.gain, self.promised, "tasks are done")
        if self.outside:
            yield f"{self.outside:,} rollouts did not run in a sandbox"
        if self.blanked is not None and self.blanked.mean > BLANKED:
            yield f"{self.blanked.mean:.2f} are done with tools that bring nothing, more than {BLANKED}"
        yield from (fault for one in self.conversations if (fault := one.fault))

    def as_dict(self) -> Mapping[str, Any]:
        return {
            "seed": self.seed,
            "sandboxed": self.sandboxed,
            "held_out": self.gain.as_dict(),
            "blanked": None if self.blanked is None else asdict(self.blanked),
            "outside_sandboxes": self.outside,
            "conversations": [asdict(one) for one in self.conversations],
            "examples": [
                {
                    "task": one.question.input,
                    "files": dict(one.question.files),
                    "before": one.answers[0],
                    "after": one.answers[1],
                    "done_before": one.right[0],
                    "done_after": one.right[1],
                }
                for one in self.examples
            ],
        }

    def tables(self, primary: str) -> Sequence[RenderableType]:
        note = (
            "Share of single rollouts after which the files are as they must be, by a verifier that nobody in the "
            f"fleet has. {self.gain.before.tasks} {self.held_out}, the same before and after; means paired by task, "
            "normal approximation."
        )
        if self.blanked is not None:
            note += " Blanked: every tool brings ?, so that nobody can know the sum."
        return (
            heading("Held-out tasks done, before and after (95 % confidence interval)"),
            gains_table(primary, {"done": self.gain}, note, blanked=self.blanked),
            heading("The first held-out tasks, and what became of one rollout of either version"),
            examples_table(self.examples),
            heading("What was trained on"),
            self._conversations(),
        )

    def _conversations(self) -> Table:
        columns = ("rollouts", "segments", "breaks", "tokens sampled", "trained on", "without advantage", "first gap")
        found = table("version", *columns)
        for one in self.conversations:
            found.add_row(
                one.version,
                f"{one.rollouts:,}",
                f"{one.segments:,}",
                ", ".join(f"{count} {kind}" for kind, count in one.breaks.items()) or "none",
                f"{one.sampled_tokens:,}",
                f"{one.trained_tokens:,}",
                f"{one.without_advantage_tokens:,}",
                Text(f"{one.gap:.1e}", style="red" if one.fault else "green"),
            )
        return found
