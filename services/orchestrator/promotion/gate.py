"""The validation gate: what a new adapter must show before any traffic. It checks, loads and asks; it decides nothing.

In order: the folder is whole and fit for the engines; then it is announced, and every replica that is there has loaded
it, which ends with a first answer; and it answers the golden set of its agent at least as well as its parent. The set
is `adapters/<agent>/golden.jsonl`, one Task a line; where there is none, the first tasks of the agent's users. A
program that is to be tried is asked the same, beside the one that answers by default. Golden tasks wait in the queue of
users' tasks, so few are asked at a time: a user who comes meanwhile waits for those few. The set has one deadline: what
has no answer by then expires together, and nothing more is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from ratchet.adapters.check import base_fault
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.taught import GOLDEN
from ratchet.adapters.verification import entry_faults
from ratchet.bus.protocol import Bus
from ratchet.bus.topology import work_queue
from ratchet.logs.names import GOLDEN_TASKS, VALIDATION
from ratchet.service.errors import AdapterError, OtherModel, one_line
from ratchet.service.telemetry import Log
from schemas.messages.adapter_event import AdapterMove
from schemas.messages.base import BaseModelIdentity, DecodeError
from schemas.messages.task import Task
from schemas.messages.work import Arm
from schemas.records.decision import ProgramArms, ProgramRevision
from schemas.records.interaction import Interaction
from schemas.records.registry import AdapterEntry
from services.orchestrator.promotion.announcer import Announcer
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.promotion.golden import GoldenVerdict, compare, summary
from services.orchestrator.promotion.own_tasks import Ask, OwnTasks
from services.orchestrator.promotion.replicas import Replicas, RollCall

log = Log("gate")

FIRST_TASKS_MARGIN = 0.2
"""Users' first tasks are few, and chosen by nobody: they find what is broken; live traffic finds what is worse."""
POLL_EVERY_S = 0.2
ANSWERS_AT_ONCE = 8
"""Of golden tasks, by each of the two that are compared; a task that asks for more of them is asked alone."""
T = TypeVar("T")
NAMED = 40
"""Characters of a program's name in the ids of its tasks."""


class Gate:
    """One agent's."""

    def __init__(
        self,
        arms: Arms,
        announcer: Announcer,
        replicas: Replicas,
        bus: Bus,
        ask: Ask,
        own_tasks: OwnTasks,
        *,
        adapters_dir: Path,
        max_rank: int,
        margin: float,
        timeout_s: float,
        golden_deadline_s: float,
        samples: int,
        first_tasks: Callable[[], Sequence[Task]],
        programs_answer: Callable[[], bool],
        clock: Callable[[], datetime],
        seconds: Callable[[], float],
    ) -> None:
        """`first_tasks`: of the agent's users, asked where there is no golden set; none to ask nothing then.

        `timeout_s`: for loading. `golden_deadline_s`: for the whole golden set. `samples`: of a task that does not say.
        `programs_answer`: whether runners take the agent's tasks.
        """
        self._arms = arms
        self._announcer = announcer
        self._replicas = replicas
        self._bus = bus
        self._ask = ask
        self._own_tasks = own_tasks
        self._home = adapters_dir / arms.agent_id
        self._max_rank = max_rank
        self._margin = margin
        self._timeout_s = timeout_s
        self._golden_deadline_s = golden_deadline_s
        self._samples = samples
        self._first_tasks = first_tasks
        self._programs_answer = programs_answer
        self._clock = clock
        self._seconds = seconds

    async def validate(self, entry: AdapterEntry) -> GoldenVerdict:
        """May take as long as the time-out and the golden set's deadline.

        Raises OtherModel, BusError, DiskFull and NotJudged: not the version's fault.
        """
        self._check_model(entry)
        try:
            limits = AdapterLimits(max_rank=self._max_rank, base=self._bases[0])
            faults = await asyncio.to_thread(entry_faults, self._home / entry.version, entry, limits)
            if faults:
                return GoldenVerdict(False, one_line(f"{entry.version} is refused: {'; '.join(faults)}"), {})
            self._announcer.validating = entry.version
            await self._load_everywhere(entry)
            return await self._ask_golden_tasks(entry)
        except AdapterError as error:
            return GoldenVerdict(False, one_line(str(error)), {})
        finally:
            self._announcer.validating = None

    def other_model(self, entry: AdapterEntry) -> str | None:
        """Why the version is none for this agent, of which all replicas, or some, run another model than its own."""
        return next(filter(None, (base_fault(entry.base, base) for base in self._bases)), None)

    def _check_model(self, entry: AdapterEntry) -> None:
        if (why := self.other_model(entry)) is not None:
            raise OtherModel(why)

    @property
    def _bases(self) -> Sequence[BaseModelIdentity | None]:
        """What the replicas run; where they can't tell (a vllm server can't), what the primary was trained on."""
        adapters = self._arms.adapters
        return self._replicas.bases or [adapters.versions[adapters.primary].base]

    async def _load_everywhere(self, entry: AdapterEntry) -> None:
        """Raises AdapterError where a replica refuses it, or does not have it in time, and OtherModel.

        The broker tells how many replicas there are, not who. So that none that died stands in for one that has not
        loaded it, only who answers a roll call counts, which is made again whenever their number has changed.
        """
        version = entry.version
        deadline = self._seconds() + self._timeout_s
        call: RollCall | None = None
        called = 0
        while True:
            replicas = await self._count()
            if call is None or replicas != called:
                event: AdapterMove = "validating" if call is None else "standing"
                announced_at = await self._announcer.announce(event, version)
                call, called = RollCall(at=self._seconds(), announced_at=announced_at), replicas
            loading = self._replicas.loading(version, self._seconds(), call)
            self._check_model(entry)  # which they may say only now
            if loading.refused:
                who, why = next(iter(loading.refused.items()))
                raise AdapterError(f"replica {who} can't load it: {why}")
            if replicas and loading.loaded >= replicas:
                return
            if self._seconds() > deadline:
                raise AdapterError(
                    f"only {loading.loaded} of {replicas} replicas of agent {self._arms.agent_id} had loaded it after "
                    f"{self._timeout_s:g} s: look at their logs, then publish it again"
                )
            await asyncio.sleep(POLL_EVERY_S)

    async def _count(self) -> int:
        """Of the replicas: who takes the agent's tasks, or, where those are runners, who was heard lately."""
        if self._programs_answer():
            return len(self._replicas.reports(self._seconds()))
        return (await self._bus.state(work_queue(self._arms.agent_id))).consumers

    async def validate_program(self, arms: ProgramArms, *, longest: float) -> GoldenVerdict:
        """Both programs answer, with the primary adapter. `longest`: times the other's length that it may have.

        Raises BusError, DiskFull and NotJudged: not the program's fault.
        """
        try:
            tasks, margin = await self._golden_tasks()
        except AdapterError as error:
            return GoldenVerdict(False, one_line(str(error)), {})
        if not tasks:
            return GoldenVerdict(True, f"there is no golden set to ask ({self._home / GOLDEN})", {})
        run = f"{arms.treatment.name[:NAMED]}-{self._announcer.revision}"
        new_lines, present_lines = await _all_or_none(
            self._by_program(tasks, one, run, is_new=one is arms.treatment) for one in (arms.treatment, arms.control)
        )
        return compare(summary(new_lines), summary(present_lines), margin=margin, shortest=0.0, longest=longest)

    async def _golden_tasks(self) -> tuple[list[Task], float]:
        """And how much worse a candidate may be on them."""
        tasks = await asyncio.to_thread(read_golden_tasks, self._home / GOLDEN)
        if tasks:
            return tasks, self._margin
        return list(self._first_tasks()), max(self._margin, FIRST_TASKS_MARGIN)

    async def _ask_golden_tasks(self, entry: AdapterEntry) -> GoldenVerdict:
        tasks, margin = await self._golden_tasks()
        if not tasks:
            reason = f"it loads and answers everywhere; there is no golden set to ask ({self._home / GOLDEN})"
            return GoldenVerdict(True, reason, {})
        parent = entry.parent if entry.parent in self._arms.adapters.versions else None
        versions = (entry.version, parent or self._arms.adapters.primary)
        candidate_lines, parent_lines = await _all_or_none(
            self._answers(tasks, version, of=entry.version) for version in versions
        )
        return compare(summary(candidate_lines), summary(parent_lines), margin=margin)

    async def _answers(self, tasks: Sequence[Task], version: str, *, of: str) -> list[Sequence[Interaction]]:
        """The whole set answered by one version, in the validation of another or the same."""
        run = f"{of}-{self._announcer.revision}"
        return await self._asked(tasks, run, version, lambda sequence: self._arm(version, sequence, run, version == of))

    async def _by_program(
        self, tasks: Sequence[Task], program: ProgramRevision, run: str, *, is_new: bool
    ) -> list[Sequence[Interaction]]:
        named = {"program": program.name, "program_revision": program.revision}

        def arm(sequence: int) -> Arm:
            return self._arm(self._arms.adapters.primary, sequence, run, is_new).model_copy(update=named)

        answered_by_it = [task.model_copy(update={"programs": None}) for task in tasks]
        return await self._asked(answered_by_it, run, f"{'new' if is_new else 'present'}-{program.name[:NAMED]}", arm)

    def _arm(self, version: str, sequence: int, run: str, is_candidate: bool) -> Arm:
        return self._arms.arm(
            version,
            sequence,
            experiment_id=f"{VALIDATION}{self._arms.agent_id}-{run}",
            is_candidate=is_candidate,
            propensity=0.5,
        )

    async def _asked(
        self, tasks: Sequence[Task], run: str, who: str, arm: Callable[[int], Arm]
    ) -> list[Sequence[Interaction]]:
        most = max(task.samples or self._samples for task in tasks)
        places = asyncio.Semaphore(max(1, ANSWERS_AT_ONCE // most))
        until = self._seconds() + self._golden_deadline_s
        named = (self._named(task, run, who, number) for number, task in enumerate(tasks))
        return await _all_or_none(self._answered(task, arm, places, until) for task in named)

    async def _answered(
        self, task: Task, arm: Callable[[int], Arm], place: AbstractAsyncContextManager[None], until: float
    ) -> Sequence[Interaction]:
        """Nothing of a task whose turn does not come in time."""
        async with place:
            left_s = until - self._seconds()
            if left_s <= 0:
                return ()
            asked = task.model_copy(update={"deadline": self._clock() + timedelta(seconds=left_s)})
            return await self._own_tasks.answer(self._ask, asked, arm)

    def _named(self, task: Task, run: str, who: str, number: int) -> Task:
        task_id = f"{GOLDEN_TASKS}{self._arms.agent_id}/{run}/{who}/{self._seconds():.3f}/{number}"
        given = {"task_id": task_id, "agent_id": self._arms.agent_id, "priority": 0}
        return task.model_copy(update={**given, "select": None, "pass_score": None})


async def _all_or_none(asked: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Their results. What still waits when one fails is called off: a later try asks anew."""
    running = [asyncio.create_task(one) for one in asked]
    try:
        return list(await asyncio.gather(*running))
    finally:
        for one in running:
            one.cancel()


def read_golden_tasks(path: Path) -> list[Task]:
    """One Task a line; none where there is no file. Raises AdapterError naming a line that is not one."""
    if not path.exists():
        return []
    tasks = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                tasks.append(Task.decode(line))
            except DecodeError as error:
                raise AdapterError(f"{path}, line {number}: {error.reason}; mend the golden set") from None
    return tasks
