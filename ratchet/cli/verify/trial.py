"""A task's own scorer tried on what its author can be sure of: the oracle, nothing, and cheats. Pure, but for `scores`.

Sound is a verifier that gives the oracle 1 and everything else 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ratchet.cli.terminal import CommandError, UsageError
from ratchet.cli.verify.cheats import cheats, no_ops
from schemas.messages.task import Task

Kind = Literal["oracle", "answer", "no-op", "cheat"]
LAST_LINES = 3
LANGUAGES = ("python", "javascript", "go", "rust")


@dataclass(frozen=True, slots=True)
class Tried:
    """An answer, what it is, and what it earned; a null score has its reason."""

    kind: Kind
    what: str
    score: float | None
    reason: str | None

    @property
    def fault(self) -> str | None:
        """What this says against the verifier; nothing of the author's own answer."""
        if self.kind == "answer":
            return None
        if self.score is None:
            return f"{self.what} was not scored: {self.reason}"
        if self.kind == "oracle" and self.score < 1:
            return f"the reference earns {self.score:.3g}, not 1: {self.reason}"
        if self.kind != "oracle" and self.score > 0:
            return f"{self.what} earns {self.score:.3g}: {self.reason}"
        return None


@dataclass(frozen=True, slots=True)
class Trial:
    """What was tried, in order."""

    tried: Sequence[Tried]

    @property
    def faults(self) -> list[str]:
        found = [one.fault for one in self.tried if one.fault is not None]
        if not any(one.kind == "oracle" for one in self.tried):
            found.append("the task has no reference: nobody knows whether its cases can be passed at all")
        return found


def answers_to(task: Task, answer: str | None) -> list[tuple[Kind, str, str]]:
    """Kind, name and text of each answer that is tried. Raises UsageError for a task without hidden cases."""
    language, functions = _told(task)
    found: list[tuple[Kind, str, str]] = []
    if task.reference is not None:
        found.append(("oracle", "the reference", task.reference))
    if answer is not None:
        found.append(("answer", "the answer", answer))
    found += [("no-op", what, text) for what, text in no_ops(language, functions).items()]
    found += [("cheat", what, text) for what, text in cheats(language, functions).items()]
    return found


def _told(task: Task) -> tuple[str, list[str]]:
    """Language, and the functions that cases call. What else the criteria hold is the scorer's to judge."""
    try:
        plan = json.loads(task.criteria or "")["tests"]
        language, cases = plan.get("language", "python"), plan["cases"]
        functions = list(dict.fromkeys(case["function"] for case in cases if "function" in case))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UsageError(
            'the task has no hidden cases to verify: its criteria are to be JSON, {"tests": {"cases": […]}}; see '
            "docs/models.md#programs-and-hidden-tests"
        ) from None
    if language not in LANGUAGES:
        raise UsageError(f"{language!r} is no language of hidden cases: {', '.join(LANGUAGES)}")
    return language, functions


def try_out(task: Task, answer: str | None, scorer: str) -> Trial:
    """Raises CommandError where the scorer can't be started, as where its sandbox does not hold."""
    asked = answers_to(task, answer)
    scores = _scores(task, [text for _, _, text in asked], scorer)
    return Trial(
        [
            Tried(kind, what, score["score"], score["reason"])
            for (kind, what, _), score in zip(asked, scores, strict=True)
        ]
    )


def _scores(task: Task, texts: Sequence[str], scorer: str) -> list[dict[str, Any]]:
    """By the scorer itself, in a process of its own, as the fleet's would."""
    line = {
        "task_id": task.task_id,
        "prompt": task.model_dump(mode="json")["input"],
        "answers": [{"text": text} for text in texts],
        "criteria": task.criteria,
        "reference": task.reference,
    }
    ended = subprocess.run(
        [sys.executable, "-m", "services.scorer.once", "--scorer", scorer],
        input=json.dumps(line) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise CommandError(f"scorer {scorer!r} failed: {' / '.join(ended.stderr.splitlines()[-LAST_LINES:])}")
    scores: list[dict[str, Any]] = json.loads(ended.stdout.splitlines()[1])["scores"]
    return scores
