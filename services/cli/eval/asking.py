"""The set asked of the running fleet, once of each contestant, and its answers read off the log.

A task of an evaluation is logged like any other and counted by nothing: no training, no experiment, no statistics.
Nobody gets a Result of it, so the log is followed; only one that the fleet refuses is answered, as it has no line.
Its tasks go past users' backlog, few at a time; agents hold them to their share (RATCHET_OWN_SHARE).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ratchet.bus.topology import HIGH_PRIORITY
from ratchet.logs.groups import Groups
from ratchet.logs.names import EVALUATION_TASKS, INTERACTIONS
from ratchet.logs.reader import LogReader, end_of_log
from ratchet.logs.rows import EvaluatedRow
from ratchet.service.errors import TimedOut
from schemas.messages.base import Metadata
from schemas.messages.result import Result
from schemas.messages.task import Task
from schemas.records.evaluation import name_contestant
from services.cli.eval.task_set import SetTask
from services.cli.terminal import CommandError

MOST_OPEN = 32
TOP_UP_AT = 16
POLL_S = 0.2
LAST_LINES = 5


class Fleet(Protocol):
    """The part of `ratchet.client.Fleet` that is used here."""

    def submit_all(self, tasks: Iterable[Task]) -> int: ...
    def listen(self, seconds: float) -> list[Result]: ...


@dataclass(frozen=True, slots=True)
class Contestant:
    """A version by itself, or a program whose model has that version."""

    version: str
    program: str | None = None

    def __str__(self) -> str:
        return name_contestant(self.version, self.program)


@dataclass(frozen=True, slots=True)
class Asking:
    """`name`: of the evaluation. `stall_s`: how long nothing may come."""

    name: str
    agent_id: str
    samples: int
    stall_s: float

    def task_id(self, contestant: Contestant, number: int) -> str:
        of = "/".join(filter(None, (contestant.version, contestant.program)))
        return f"{EVALUATION_TASKS}{self.name}/{of}/{number}"

    def task(self, one: SetTask, contestant: Contestant, number: int) -> Task:
        """Return the task as that contestant is asked; what is right travels to the scorer alone."""
        return one.task.model_copy(
            update={
                "task_id": self.task_id(contestant, number),
                "agent_id": self.agent_id,
                "adapter_version": contestant.version,
                "programs": (contestant.program,) if contestant.program is not None else one.task.programs,
                "evaluation": self.name,
                "samples": self.samples,
                "session_id": None,
                "priority": HIGH_PRIORITY,
                "deadline": datetime.now(UTC) + timedelta(seconds=self.stall_s),
                "metadata": Metadata(timestamp=datetime.now(UTC), source="ratchet eval"),
            }
        )


def answers(
    fleet: Fleet,
    logs_dir: Path,
    asked: Mapping[str, Callable[[], Task]],
    stall_s: float,
    advance: Callable[[], None],
    refused: Callable[[Result], None],
    *,
    seconds: Callable[[], float] = time.monotonic,
) -> dict[str, list[EvaluatedRow]]:
    """The lines of each task by its id, in the order of its samples; none of one that is refused. A task is made when
    it is its turn.

    Raises TimedOut when nothing came for `stall_s`; BusError, JournalError, CommandError.
    """
    reader = LogReader(logs_dir, INTERACTIONS, end_of_log(logs_dir, INTERACTIONS))
    groups, found = Groups[str, EvaluatedRow](), dict[str, list[EvaluatedRow]]()
    waiting, open_, heard = deque(asked), set[str](), seconds()
    while waiting or open_:
        if waiting and len(open_) <= TOP_UP_AT:
            some = [waiting.popleft() for _ in range(min(MOST_OPEN - len(open_), len(waiting)))]
            fleet.submit_all([asked[task_id]() for task_id in some])
            open_.update(some)
        came = 0
        for row in (record.value for record in reader.records(EvaluatedRow)):
            if row.task_id in open_ and (lines := groups.add(row.task_id, row.sample, row.group_size, row)):
                open_.discard(row.task_id)
                found[row.task_id] = lines
                came += 1
                advance()
        for result in fleet.listen(0.0 if came else POLL_S):
            if result.task_id in open_ and result.agent_id is None:  # else a lost connection had it asked twice
                open_.discard(result.task_id)
                found[result.task_id] = []
                came += 1
                advance()
                refused(result)
        if came:
            heard = seconds()
        elif seconds() - heard > stall_s:
            raise TimedOut(f"no answer for {stall_s:g} s, {len(open_) + len(waiting)} are open: see `ratchet status`")
    return found


def scored_anew(scorer: str, groups: Mapping[str, tuple[Task, Sequence[EvaluatedRow]]]) -> tuple[str, dict[str, Any]]:
    """Another scorer's identity, and its scores of each group by task id, as SampleScore. Raises as `score_apart`."""
    asked = {task_id: (task, [_answer(row) for row in rows]) for task_id, (task, rows) in groups.items()}
    identity, scores = score_apart(scorer, asked)
    return f"{identity['id']} {identity['revision']}", scores


def _answer(row: EvaluatedRow) -> dict[str, Any]:
    usage = row.usage and {"sampled_tokens": row.usage.sampled_tokens, "seconds": row.usage.seconds}
    artifact = row.artifact and msgspec.to_builtins(row.artifact)
    return {"text": row.response or "", "finish_reason": row.finish_reason, "artifact": artifact, "usage": usage}


def score_apart(
    scorer: str, answers: Mapping[str, tuple[Task, Sequence[Mapping[str, Any]]]], *, judging: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Score answers by task id in a process of its own; returns the scorer's identity, and the scores by task id.

    With `judging` by those parts of the scorer that don't score cost. Raises CommandError with its last lines.
    """
    lines = [
        {
            "task_id": task_id,
            "prompt": task.model_dump(mode="json")["input"],
            "answers": list(given),
            "reference": task.reference,
            "criteria": task.criteria,
            "task_type": task.task_type,
            "workspace": task.workspace and task.workspace.model_dump(mode="json"),
        }
        for task_id, (task, given) in answers.items()
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "services.scorer.once", *(["--judging"] if judging else []), "--scorer", scorer],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise CommandError(f"scorer {scorer!r} failed: {' / '.join(ended.stderr.splitlines()[-LAST_LINES:])}")
    identity, *scored = (json.loads(line) for line in ended.stdout.splitlines())
    return identity, {line["task_id"]: line["scores"] for line in scored}
