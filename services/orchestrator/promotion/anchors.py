"""Anchors: fixed answers that are scored again from time to time. Their scores move only if the scorer does.

So a fall of the fleet's scores while those of the anchors stay is the model's; a move of the anchors is the judge's,
and an experiment that was judged by it is aborted. The anchors of an agent are `adapters/<agent>/anchors.jsonl`: taken
from its first scored answers where there is no such file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from ratchet.experiments.logged import scorer_of
from ratchet.files.atomic_file import replace_file
from ratchet.logs.names import VALIDATION, is_own
from ratchet.service.errors import JournalError
from ratchet.service.telemetry import Log
from schemas.messages.task import Task
from schemas.messages.work import Arm
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.promotion.own_tasks import OwnTasks

log = Log("anchors")

ANCHORS = "anchors.jsonl"
COUNT = 16

Rescore = Callable[[Task, str, Callable[[int], Arm]], Awaitable[None]]
"""Have the fleet's scorer score a given answer to a task of our own."""


class Anchor(msgspec.Struct, frozen=True):
    """An answer, the score it had, and who gave it."""

    task: bytes
    answer: str
    score: float
    scorer: str


_encoder = msgspec.json.Encoder()


class Anchors:
    """One agent's."""

    def __init__(
        self,
        agent_id: str,
        adapters_dir: Path,
        rescore: Rescore,
        own_tasks: OwnTasks,
        arm: Callable[[str, int], Arm],
        drifted: Callable[[str], Awaitable[None]],
        *,
        tolerance: float,
    ) -> None:
        """`arm`: of an experiment id and a sequence number. `drifted` hears, as a sentence, that the scorer moved."""
        self._agent_id = agent_id
        self._path = adapters_dir / agent_id / ANCHORS
        self._rescore = rescore
        self._own_tasks = own_tasks
        self._arm = arm
        self._drifted = drifted
        self._tolerance = tolerance
        self._anchors: list[Anchor] = []
        self._unsaved = False
        self._runs = 0

    def start(self) -> None:
        if self._path.exists():
            self._anchors = [msgspec.json.decode(line, type=Anchor) for line in self._path.read_bytes().splitlines()]

    @property
    def tasks(self) -> list[Task]:
        """The users' tasks that they answer; none until there are enough."""
        return [Task.decode(anchor.task) for anchor in self._anchors] if len(self._anchors) >= COUNT else []

    def closed(self, lines: Sequence[Interaction], task: Task) -> None:
        """Of a task of the fleet: its first answer becomes an anchor while there are too few.

        Raises nothing for a disk that fails: that is no fault of the task, and the next one tries again.
        """
        self._collect(lines[0], task)
        if self._unsaved:
            try:
                self._save()
            except (OSError, JournalError) as error:
                log.warning("anchors-unsaved", f"kept in memory until {self._path} can be written: {error}")

    def _collect(self, line: Interaction, task: Task) -> None:
        scorer = scorer_of(line)
        if len(self._anchors) >= COUNT or is_own(line.arm.experiment_id) or line.response is None or scorer is None:
            return
        assert line.score is not None
        plain = Task(
            task_id=task.task_id,
            input=task.input,
            reference=task.reference,
            criteria=task.criteria,
            task_type=task.task_type,
        )
        self._anchors.append(Anchor(plain.encode(), line.response, line.score, scorer))
        self._unsaved = len(self._anchors) == COUNT

    async def check(self) -> None:
        """Score all of them again. Under another scorer than before, its scores become the measure."""
        if len(self._anchors) < COUNT:
            return
        self._runs += 1
        again = await asyncio.gather(*(self._again(number, anchor) for number, anchor in enumerate(self._anchors)))
        scored = [(old, new) for old, new in zip(self._anchors, again, strict=True) if new is not None]
        if len(scored) < len(self._anchors):
            log.warning("anchors-unscored", f"{COUNT - len(scored)} of {COUNT} anchors could not be scored again")
            return
        if any(old.scorer != new.scorer for old, new in scored):
            log.info("anchors-renewed", f"the scorer is now {scored[0][1].scorer}: its scores are the new measure")
            self._anchors = [new for _, new in scored]
            self._save()
            return
        await self._judge(fmean(new.score - old.score for old, new in scored))

    async def _judge(self, drift: float) -> None:
        metrics.judge_drift.labels(self._agent_id).set(drift)
        if abs(drift) > self._tolerance:
            sentence = f"the scorer drifted: the same {COUNT} answers score {drift:+.3f} on average (anchors)"
            log.error("judge-drift", sentence, agent_id=self._agent_id, drift=drift)
            await self._drifted(sentence)

    async def _again(self, number: int, anchor: Anchor) -> Anchor | None:
        run = f"{VALIDATION}{self._agent_id}-anchors-{self._runs}"
        task = Task.decode(anchor.task)
        asked = task.model_copy(
            update={"task_id": f"anchor/{run}/{number}/{id(self):x}", "agent_id": self._agent_id, "samples": 1}
        )

        async def ask(task: Task, arm: Callable[[int], Arm]) -> None:
            await self._rescore(task, anchor.answer, arm)

        (line,) = await self._own_tasks.answer(ask, asked, lambda sequence: self._arm(run, sequence))
        scorer = scorer_of(line)
        return (
            None
            if scorer is None or line.score is None
            else msgspec.structs.replace(anchor, score=line.score, scorer=scorer)
        )

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, b"".join(_encoder.encode(anchor) + b"\n" for anchor in self._anchors))
        self._unsaved = False
