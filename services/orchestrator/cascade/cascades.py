"""The cascades of a fleet at work: has big models answer what small ones should not, and pairs of answers judged.

The small model answers each task with its group. Where the group's score is below the cut its Reward is kept, on disk,
until the big model has answered a task of the fleet's own that asks the same; then the user's task is closed with both.
Where it is above, it is closed at once, and an audited one has the big model asked besides. While the big model answers
everything it is asked as soon as a task is admitted.

What a kill cuts short is taken up at the start: kept Rewards are routed again, audited units without a verdict are
asked for again. No task waits longer than its deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from ratchet.experiments.cascade import Pair
from ratchet.experiments.cascade_trial import pair_of
from ratchet.logs.best_answer import best, choose_answer
from ratchet.logs.cascaded import big_task_of, experiment_of, is_asked_of_big, served_lines, with_routing
from ratchet.service.errors import Reject
from schemas.messages.base import DecodeError
from schemas.messages.reward import Reward
from schemas.messages.task import Task
from schemas.messages.work import Work
from schemas.records.audit import AuditedTask
from schemas.records.cascade import Routing
from schemas.records.interaction import Interaction
from services.orchestrator.auditing.audits import Audits
from services.orchestrator.cascade.agent_cascade import AgentCascade
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.tasks.intake import Intake
from services.orchestrator.tasks.settler import Finish, Settler

OF_THE_USER = frozenset(
    {"adapter_version", "evaluation", "needs_token_texts", "needs_usage", "pass_score", "programs", "select"}
    | {"session_id", "work_to", "local_only"}
)
"""Fields of a task that the big model is not asked."""
MARGIN = timedelta(seconds=1)
"""The big model's deadline is so much before the user's."""
AT_ONCE = 200
MOST_ANSWERS = 1_000
"""Answers that came before the small model's and are kept in memory."""
BUDGET = "what it may cost on one day is spent"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A user's task that waits for the big model."""

    of: AgentCascade
    routing: Routing


@dataclass(frozen=True, slots=True)
class Unit:
    """An audited unit: both answers are judged once both are there."""

    of: AgentCascade
    order: int
    task_id: str


@dataclass(eq=False)
class Cascades:
    """`agents`: those that have a cascade."""

    agents: Mapping[str, AgentCascade]
    ledger: Ledger
    audits: Audits
    intake: Intake
    settler: Callable[[], Settler]
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._routings: dict[str, Routing] = {}
        """Routings of open tasks: one that is handled again, since the disk was full, keeps its place in the order."""
        self._waiting: dict[str, Waiting] = {}
        self._waits_for: dict[str, str] = {}
        """The user's task that waits, by the big model's."""
        self._units: dict[str, Unit] = {}
        """Audited units, by the big model's task."""
        self._to_ask: dict[str, tuple[AgentCascade, Work]] = {}
        self._answers: dict[str, Sequence[Interaction]] = {}
        """Answers that came before the small model's."""
        self._ready: deque[tuple[str, Sequence[Interaction] | str]] = deque()
        self._kept: deque[str] = deque()
        """Tasks of before this start whose Rewards were kept."""
        self._to_judge: deque[Unit] = deque()

    # --- what the orchestrator gives it ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up open tasks, once ledger, logs and registry are open. Raises RegistryError, JournalError."""
        for name, one in self.agents.items():
            one.spending.take_up(self.ledger.index.note(f"cascade/{name}"))
            for order, task_id in await one.start():
                self._units[big_task_of(task_id)] = unit = Unit(one, order, task_id)
                self._to_judge.append(unit)
        for body in self.ledger.index.open_works() if self.agents else ():
            work = Work.decode(body)
            if work.agent_id in self.agents and self.kept_reward(work.task_id) is not None:
                self._kept.append(work.task_id)
            if (asking := self._asking(work)) is not None:
                asking.spending.reserve(work.task_id, work)

    def note_admitted(self, work: Work) -> None:
        """A Work is in the log. While the big model answers all, it is asked at once."""
        one = self._of(work)
        big_task = big_task_of(work.task_id)
        if one is not None and one.answers_nothing and one.spending.has_room(big_task, work, self._today()):
            self._to_ask[big_task] = one, work

    def is_waiting(self, task_id: str) -> bool:
        """Tell whether the task's Reward is kept until the big model has answered."""
        return task_id in self._waiting

    def kept_reward(self, task_id: str) -> Reward | None:
        """Return the Reward of a task that waits, or waited before this start. Raises StorageUnavailable."""
        kept = self.ledger.index.kept_response(task_id)
        try:
            return Reward.decode(kept) if kept is not None else None
        except DecodeError:
            return None  # a Response that an external scorer's Reward is to come for

    async def route(self, reward: Reward, work: Work, lines: list[Interaction]) -> list[Interaction] | None:
        """Return the lines that close the task; None where it waits for the big model. Raises JournalError."""
        if (one := self._of(work)) is None:
            return lines
        if work.task_id in self._waiting:
            return None
        big_task, answer = big_task_of(work.task_id), await self._answer_to(work.task_id)
        routing = self._routing_of(one, work, lines)
        if routing.to == "small":
            return with_routing(lines, routing)
        if answer is not None:
            return one.close_lines(lines, routing, answer)
        may_ask = self.ledger.find(big_task) is not None or one.spending.has_room(big_task, work, self._today())
        if not one.waits and not may_ask:
            return one.close_lines(lines, routing, BUDGET)
        await self.ledger.keep_response(work.task_id, reward.encode())
        self._waiting[work.task_id] = Waiting(one, routing)
        self._waits_for[big_task] = work.task_id
        self._to_ask[big_task] = one, work
        return None

    async def overdue(self, work: Work) -> Finish | None:
        """Return what becomes of a task whose time is up; None where no cascade has a part in it."""
        if (waiting := self._waiting.get(work.task_id)) is not None:
            return lambda lines: waiting.of.close_lines(lines, waiting.routing, "not before the deadline")
        one = self._of(work)
        answer = await self._answer_to(work.task_id) if one is not None else None
        if one is None or answer is None or answer[0].sample is None:
            return None
        return lambda lines: one.close_lines(lines, self._routing_of(one, work, lines), answer)

    def note_closed(self, work: Work, lines: Sequence[Interaction]) -> None:
        """A task has its lines in the log."""
        if is_asked_of_big(work.arm.experiment_id):
            self._big_closed(work, lines)
            return
        if (one := self.agents.get(work.agent_id)) is None:
            return
        big_task = big_task_of(work.task_id)
        self._answers.pop(big_task, None)
        self._to_ask.pop(big_task, None)
        self._waits_for.pop(big_task, None)
        self._waiting.pop(work.task_id, None)
        routed, routing = self._routings.pop(work.task_id, None), lines[0].cascade
        if routing is None:
            if routed is not None and one.trial is not None:
                one.trial.resolve(routed.order, None)
            return
        one.note_closed(lines, routing)
        if routing.is_unit:
            self._note_unit(Unit(one, routing.order, work.task_id), work, lines, routing)

    def note_verdict(self, verdict: AuditedTask) -> None:
        """A pair was judged, or given up, and that is in the log."""
        if (unit := self._units.pop(verdict.task_id, None)) is not None and unit.of.trial is not None:
            unit.of.trial.resolve(unit.order, pair_of(verdict))

    async def turn(self) -> None:
        """Ask, close what is answered, decide. Raises BusError, JournalError, RegistryError; the next turn goes on."""
        while self._kept:
            await self.settler().route_kept(self._kept[0])
            self._kept.popleft()
        while self._ready:
            await self._finish(*self._ready[0])
            self._ready.popleft()
        for big_task in list(self._to_ask)[:AT_ONCE]:
            await self._ask(big_task)
        while self._to_judge:
            await self._take_up_unit(self._to_judge[0])
            self._to_judge.popleft()
        for one in self.agents.values():
            await one.turn()

    def write_notes(self) -> None:
        for name, one in self.agents.items():
            self.ledger.index.write_note(f"cascade/{name}", one.spending.note())

    # --- the big model ---------------------------------------------------------------------------------------------

    def _of(self, work: Work) -> AgentCascade | None:
        one = self.agents.get(work.agent_id)
        return one if one is not None and one.routes(work) else None

    def _routing_of(self, one: AgentCascade, work: Work, lines: list[Interaction]) -> Routing:
        """Route an open task, once."""
        if work.task_id not in self._routings:
            self._routings[work.task_id] = one.route(work, lines)
        return self._routings[work.task_id]

    def _asking(self, work: Work) -> AgentCascade | None:
        """Return the cascade whose big model is asked in this task of the fleet's own."""
        of = (one for name, one in self.agents.items() if work.arm.experiment_id == experiment_of(name))
        return next(of, None)

    def _today(self) -> date:
        return self.clock().date()

    async def _ask(self, big_task: str) -> None:
        """Ask the big model, once; while its budget is spent, tasks that wait wait on."""
        one, work = self._to_ask[big_task]
        known = self.ledger.find(big_task)
        if known is not None and known.result is not None:
            answer = await self._answer_to(work.task_id)
            self._ready.append((big_task, answer or "its task_id was used before, by another task"))
        elif known is not None:
            await self.intake.send_again(known)
        elif not one.spending.has_room(big_task, work, self._today()):
            if big_task in self._waits_for:
                self._to_ask[big_task] = self._to_ask.pop(big_task)  # the next time others come first
                return
            self._ready.append((big_task, BUDGET))
        else:
            one.spending.reserve(big_task, work)
            try:
                await self.intake.ask(self._task_of(one, work, big_task), one.arm_of_big)
            except Reject as error:
                self._ready.append((big_task, str(error)))
        self._to_ask.pop(big_task, None)

    def _task_of(self, one: AgentCascade, work: Work, big_task: str) -> Task:
        latest = work.deadline - MARGIN
        timeout = timedelta(seconds=one.settings.cascade_timeout_s)
        until = latest if one.waits else min(latest, self.clock() + timeout)
        same = {name: work.__dict__[name] for name in Task.model_fields if name not in OF_THE_USER}
        asked = {"task_id": big_task, "agent_id": one.big.agent_id, "samples": 1, "deadline": until}
        return Task.from_valid(same | asked)

    async def _answer_to(self, task_id: str) -> Sequence[Interaction] | None:
        """Return the lines of the big model's task; None while it has none. Raises JournalError."""
        big_task = big_task_of(task_id)
        if (found := self._answers.get(big_task)) is not None:
            return found
        known = self.ledger.find(big_task)
        if known is None or known.result is None:
            return None
        lines = await self.ledger.lines_of(known)
        return lines if lines and is_asked_of_big(lines[0].arm.experiment_id) else None

    def _big_closed(self, work: Work, lines: Sequence[Interaction]) -> None:
        big_task = work.task_id
        if (one := self._asking(work)) is not None:
            one.spending.settle(big_task, lines, self._today())
        if big_task in self._waits_for or big_task in self._units:
            self._ready.append((big_task, lines))
        else:
            self._answers[big_task] = lines
            if len(self._answers) > MOST_ANSWERS:  # the log has them, too
                del self._answers[next(iter(self._answers))]

    async def _finish(self, big_task: str, answer: Sequence[Interaction] | str) -> None:
        """Close the task that waits for this answer, or have it judged beside the small model's."""
        task_id = self._waits_for.get(big_task)
        if task_id is not None and (waiting := self._waiting.get(task_id)) is not None:
            await self.settler().finish_kept(
                task_id, lambda lines: waiting.of.close_lines(lines, waiting.routing, answer)
            )
        elif (unit := self._units.get(big_task)) is not None:
            await self._judge_small(unit, answer)

    # --- evidence --------------------------------------------------------------------------------------------------

    def _note_unit(self, unit: Unit, work: Work, lines: Sequence[Interaction], routing: Routing) -> None:
        trial = unit.of.trial
        assert trial is not None
        big_task = big_task_of(unit.task_id)
        if routing.to == "big" and routing.big is None:
            trial.resolve(unit.order, None)
        elif not routing.is_audited:
            trial.resolve(unit.order, Pair())
        elif routing.to == "small":
            self._units[big_task] = unit
            self._to_ask[big_task] = unit.of, work
        else:
            self._units[big_task] = unit
            self.audits.ask_pair(
                work, choose_answer(lines), served_lines(lines)[0].model_copy(update={"task_id": big_task})
            )

    async def _judge_small(self, unit: Unit, answer: Sequence[Interaction] | str) -> None:
        """The small model answered, and the big one beside it. A unit that one failed to answer is left out."""
        trial, big_task = unit.of.trial, big_task_of(unit.task_id)
        assert trial is not None
        found = await self.ledger.logged_task(unit.task_id)
        # The small model's answer may have been routed, and the disk too full to log it before the deadline.
        if isinstance(answer, str) or answer[0].sample is None or found is None or found[1][0].sample is None:
            self._units.pop(big_task, None)
            trial.resolve(unit.order, None)
            return
        work, lines = found
        self.audits.ask_pair(work, choose_answer(lines), best(answer))

    async def _take_up_unit(self, unit: Unit) -> None:
        """An audited unit of before this start that has no verdict: go on where it was cut off."""
        known = self.ledger.find(unit.task_id)
        if known is None:
            return
        answer = await self._answer_to(unit.task_id)
        if answer is not None:
            await self._judge_small(unit, answer)
        else:
            self._to_ask[big_task_of(unit.task_id)] = unit.of, await self.ledger.work_of(known)
