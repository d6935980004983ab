"""What a tools demo came to: held-out tasks done, before, after and with blanked tools; what was trained on. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from demos.story import DemoStory
from demos.tools.in_sandboxes import outcome_of
from demos.tools.verifier import is_done
from demos.toy.tools.task import ToolTask
from ratchet.experiments.gain import Estimate, Gain
from ratchet.logs.rows import AnswerRow

PROMISED = 0.80
"""Share of single rollouts of held-out tasks that are done at the end."""
BLANKED = 0.02
"""And at most where the tools bring nothing: more would be done without them."""
LARGEST_GAP = 1e-4
"""Nats a token between what was logged and what the trainer finds before its first step."""
EXAMPLES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Conversations:
    """That a version was trained on, as its training report has them.

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
    def of(cls, version: str, report: Mapping[str, Any]) -> Conversations:
        """Raises KeyError for a report of a training that had none."""
        told = report["data"]["conversations"]
        return cls(
            version,
            told["rollouts"],
            told["segments"],
            told["breaks"],
            told["sampled_tokens"],
            told["trained_tokens"],
            told["without_advantage_tokens"],
            max(report["parent_match"]["gap"] or 0.0, report["steps"][0]["gap"]),
        )

    @property
    def fault(self) -> str | None:
        if self.gap > LARGEST_GAP:
            return f"{self.version} began {self.gap:.1e} nats a token from what was logged, more than {LARGEST_GAP:g}"
        if self.sampled_tokens != self.trained_tokens + self.without_advantage_tokens:
            return f"of {self.sampled_tokens:,} tokens sampled {self.version} accounts for {self.trained_tokens:,} only"
        return None


@dataclass(frozen=True, slots=True)
class ToolExample:
    """A held-out task, and what became of its first rollout by either version."""

    task: ToolTask
    before: str
    after: str

    @property
    def done(self) -> tuple[bool, bool]:
        return is_done(self.task, self.before), is_done(self.task, self.after)

    def as_dict(self) -> dict[str, Any]:
        before, after = self.done
        asked = {"task": self.task.input, "files": self.task.files, "before": self.before, "after": self.after}
        return asked | {"done_before": before, "done_after": after}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStory(DemoStory):
    """`gain`: of single rollouts, by the hidden verifier; `blanked`: the primary's where tools bring nothing."""

    seed: int
    sandboxed: bool
    gain: Gain
    blanked: Estimate
    conversations: tuple[Conversations, ...]
    examples: tuple[ToolExample, ...]

    def _own_faults(self) -> Iterator[str]:
        if not self.gain.significant:
            yield "the hidden verifier does not confirm a gain: the interval of the difference reaches 0"
        if self.gain.after.mean < PROMISED:
            yield f"{self.gain.after.mean:.2f} of the held-out tasks are done, less than {PROMISED}"
        if self.blanked.mean > BLANKED:
            yield f"{self.blanked.mean:.2f} are done with tools that bring nothing, more than {BLANKED}"
        yield from (fault for one in self.conversations if (fault := one.fault))

    def _own_figures(self) -> Mapping[str, Any]:
        return {
            "seed": self.seed,
            "sandboxed": self.sandboxed,
            "held_out": self.gain.as_dict(),
            "blanked": asdict(self.blanked),
            "conversations": [asdict(one) for one in self.conversations],
            "examples": [one.as_dict() for one in self.examples],
        }


def done_by_task(tasks: Mapping[str, ToolTask], rows: Sequence[AnswerRow]) -> dict[str, list[float]]:
    """By workspace, 1.0 for each rollout that did the task and 0.0 for each other; `tasks` by id, `rows` the log's."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.sample is not None:
            task = tasks[row.task_id]
            found.setdefault(str(task.workspace), []).append(float(is_done(task, outcome_of(row))))
    return found


def first_outcomes(tasks: Mapping[str, ToolTask], rows: Sequence[AnswerRow]) -> dict[int, str]:
    """By workspace, what became of the first rollout."""
    return {tasks[row.task_id].workspace: outcome_of(row) for row in rows if row.sample == 0}


def examples_of(
    tasks: Sequence[ToolTask], before: Mapping[int, str], after: Mapping[int, str]
) -> tuple[ToolExample, ...]:
    """The first tasks, whatever became of them."""
    chosen = tasks[:EXAMPLES_SHOWN]
    return tuple(ToolExample(one, before.get(one.workspace, ""), after.get(one.workspace, "")) for one in chosen)
