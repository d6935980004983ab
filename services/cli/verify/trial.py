"""A task's own scorer tried on what its author can be sure of: the oracle, nothing, and cheats.

Sound is a verifier that gives the oracle 1 and everything else 0. Of a task with a workspace the oracle is the patch
that its reference is, and cheats are files in the place of those that it changes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ratchet.service.errors import FAULTS
from schemas.messages.task import Task
from services.cli.eval.asking import score_apart
from services.cli.terminal import CommandError, UsageError
from services.cli.verify.cheats import OF_COMMANDS, cheats, no_ops, workspace_cheats
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.settings import SandboxSettings
from workbench.trees import Tree
from workbench.workspaces.errors import PatchRefused
from workbench.workspaces.settings import WorkspaceSettings
from workbench.workspaces.workspaces import Workspaces

Kind = Literal["oracle", "answer", "no-op", "cheat"]
ENOUGH_CONTROLS = 7
"""The controls with which a constant answer, such as a sum of the files, passes once in 256."""
NOTHING_CHANGED = '{"files": {}}'


@dataclass(frozen=True, slots=True)
class Tried:
    """An answer, what it is, and what it earned; a null score has its reason."""

    kind: Kind
    what: str
    score: float | None
    reason: str | None

    @property
    def fault(self) -> str | None:
        """Return what this says against the verifier; nothing of the author's own answer."""
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
    """The trials, in order."""

    tried: Sequence[Tried]
    known: Sequence[str] = ()
    """Faults that show without a trial."""
    notes: Sequence[str] = ()
    """Remarks that are no fault."""
    left_out: Sequence[str] = ()
    """Parts of the scorer that score cost: what is tried took no calls of a model."""

    @property
    def faults(self) -> list[str]:
        found = [*self.known, *(one.fault for one in self.tried if one.fault is not None)]
        if not any(one.kind == "oracle" for one in self.tried):
            found.append("the task has no reference: nobody knows whether its cases can be passed at all")
        return found


@dataclass(frozen=True, slots=True)
class Around:
    """A task's workspace, as text: before, and as its reference leaves it."""

    before: Mapping[str, str]
    solved: Mapping[str, str]


def answers_to(task: Task, answer: str | None, around: Around | None = None) -> list[tuple[Kind, str, str]]:
    """Kind, name and text of each answer that is tried. Raises UsageError for a task without hidden cases."""
    plan = _plan_of(task)
    language, functions = _read_plan(plan)
    found: list[tuple[Kind, str, str]] = []
    if task.reference is not None:
        found.append(("oracle", "the reference", task.reference))
    if answer is not None:
        found.append(("answer", "the answer", answer))
    if around is not None:
        found.append(("no-op", "the workspace as it was", NOTHING_CHANGED))
        made = workspace_cheats(language, around.before, around.solved)
        found += [("cheat", what, text) for what, text in made.items()]
    if around is None or plan.get("file"):
        found += [("no-op", what, text) for what, text in no_ops(language, functions).items()]
        found += [("cheat", what, text) for what, text in cheats(language, functions).items()]
    return found


def known_faults(task: Task, around: Around) -> list[str]:
    """Yield the faults of a suite that earns something: its files must not be those that the answer's writer was
    shown."""
    suite = _plan_of(task).get("suite") or {}
    files = suite.get("files") or {}
    if suite.get("tests") and files and all(around.before.get(path) == text for path, text in files.items()):
        return [
            "the suite's files are those of the workspace: what has seen them can tell them from the control, and pass "
            "the one and not the other; give it other tests, or let these only `keep`"
        ]
    return []


def notes(task: Task) -> list[str]:
    """Yield notes on a suite that earns something by few controls."""
    suite = _plan_of(task).get("suite") or {}
    control = suite.get("control")
    count = len(control) if isinstance(control, list) else 1
    if not suite.get("tests") or count >= ENOUGH_CONTROLS:
        return []
    controls = "one control" if count == 1 else f"{count} controls"
    return [
        f"the suite has {controls}: an answer that takes a sum of the tests' files for its verdict passes once in "
        f"{2 ** (count + 1)}; each more, wrong in its own way, halves that, and {ENOUGH_CONTROLS} are enough"
    ]


def _plan_of(task: Task) -> dict[str, Any]:
    try:
        plan = json.loads(task.criteria or "")["tests"]
        if isinstance(plan, dict) and all(isinstance(case, dict) for case in plan.get("cases") or ()):
            return plan
    except (ValueError, TypeError, KeyError):
        pass
    raise UsageError(
        'the task has no hidden cases to verify: its criteria are to be JSON, {"tests": {"cases": […]}}; see '
        "docs/models.md#programs-and-hidden-tests"
    )


def _read_plan(plan: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Language, and the functions that cases call. What else the criteria hold is the scorer's to judge."""
    language, cases = plan.get("language", "python"), plan.get("cases") or ()
    functions = list(dict.fromkeys(case["function"] for case in cases if "function" in case))
    if not cases and not plan.get("suite") and not plan.get("script"):
        raise UsageError("the task has no hidden cases to verify: see docs/models.md#programs-and-hidden-tests")
    if language not in OF_COMMANDS:
        raise UsageError(f"{language!r} is no language of hidden cases: {', '.join(OF_COMMANDS)}")
    return language, functions


def try_out(task: Task, answer: str | None, scorer: str) -> Trial:
    """Try it by all of the scorer that judges, and nothing that scores cost. Raises CommandError where it can't be
    started, as where its sandbox does not hold."""
    around = asyncio.run(_around(task)) if task.workspace is not None else None
    asked = answers_to(task, answer, around)
    texts = [{"text": text} for _, _, text in asked]
    identity, scores = score_apart(scorer, {task.task_id: (task, texts)}, judging=True)
    tried = [
        Tried(kind, what, score["score"], score["reason"])
        for (kind, what, _), score in zip(asked, scores[task.task_id], strict=True)
    ]
    return Trial(tried, known_faults(task, around) if around is not None else (), notes(task), identity["left_out"])


async def _around(task: Task) -> Around:
    """Raises UsageError for a reference that is no patch of the workspace, CommandError where it can't be read."""
    assert task.workspace is not None
    try:
        sandbox = await asyncio.to_thread(Sandbox.open, SandboxSettings())
        async with Workspaces(WorkspaceSettings(), sandbox) as workspaces:
            before = await workspaces.tree(task.workspace)
            solved = await workspaces.apply_patch(before, task.reference or "")
    except PatchRefused as error:
        raise UsageError(f"the task's reference is to be a patch of its workspace: {error}") from error
    except FAULTS as error:
        raise CommandError(f"the task's workspace can't be read: {error}") from error
    return Around(_texts(before), _texts(solved))


def _texts(tree: Tree) -> dict[str, str]:
    return {path: bytes(file.content).decode(errors="replace") for path, file in tree.files.items() if not file.is_link}
