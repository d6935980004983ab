"""The real demo on a fleet that is up: held-out tasks, turns of the ratchet, the same tasks again, the report."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ratchet.adapters.registry import RegistryStore
from ratchet.cli.demo.adapter_status import AdapterStatusReader
from ratchet.cli.demo.books import Account, Users, account
from ratchet.cli.demo.held_out import Measured, dead_letters, measure
from ratchet.cli.demo.loop import Loop, LoopPlan
from ratchet.cli.demo.narrator import Narrator
from ratchet.cli.demo.place import DemoPlace
from ratchet.cli.demo.real.page import real_page
from ratchet.cli.demo.real.picture import picture
from ratchet.cli.demo.real.plan import GOOD_ENOUGH, MOST_OPEN, TEMPERATURE, RealPlan
from ratchet.cli.demo.real.story import RealStory, examples_of, first_answers, gains_of, right_answers
from ratchet.cli.demo.real.tasks import RealTask
from ratchet.cli.demo.real.time_left import TimeLeft
from ratchet.cli.demo.story import DemoTurn
from ratchet.cli.fleet.folder import FleetAccess
from ratchet.cli.report.command import page
from ratchet.cli.report.gathered import gather
from ratchet.files.atomic_file import replace_file
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import read_json
from ratchet.logs.rows import AnswerRow
from ratchet.service.settings import FleetSettings
from schemas.messages.work import BASE_VERSION


@dataclass
class RealPerformance:
    """The narrator tells what happens meanwhile; `left` is told how far it is."""

    access: FleetAccess
    place: DemoPlace
    agent_id: str
    plan: RealPlan
    loop_plan: LoopPlan
    narrator: Narrator
    left: TimeLeft
    model: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def __post_init__(self) -> None:
        self.users = Users(
            self.access,
            self.plan.users(self.run),
            judging=self.plan.judging(self.run),
            stall_s=self.plan.stall_s,
            most_open=MOST_OPEN,
        )
        self.store = RegistryStore.of(FleetSettings.read(adapters_dir=self.place.adapters, logs_dir=self.place.logs))
        self.held_out = self.plan.held_out
        status = AdapterStatusReader(self.access, self.store, self.agent_id)
        self.loop = Loop(status, self.users, self.narrator, self.loop_plan, self.run, self._at)
        self.turn = 1

    def perform(self) -> RealStory:
        """Raises CommandError, TimedOut, BusError, RegistryError, AdapterError, JournalError."""
        tasks_before, before = self._measure("before", BASE_VERSION, "the model as it was fetched")
        turns = tuple(self._turns())
        primary = self._primary
        tasks_after, after = self._measure("after", primary, f"the primary, {primary}")
        right = right_answers(tasks_before, before.rows), right_answers(tasks_after, after.rows)
        first = first_answers(tasks_before, before.rows), first_answers(tasks_after, after.rows)
        story = RealStory(
            seed=self.plan.seed,
            temperature=TEMPERATURE,
            model=self.model,
            primary=primary,
            gains=gains_of(self.held_out, *right),
            examples=examples_of(self.held_out, *first),
            turns=turns,
            decisions=tuple(decision for decision, _ in self.store.ledger.read()),
            books=account(self.users.books, self.place.logs)
            + self._counted(tasks_before, before)
            + self._counted(tasks_after, after),
            dead_letters=dead_letters(self.access),
            seconds=self.narrator.seconds,
            page=str(self.place.result),
        )
        self._write(story)
        return story

    @property
    def _primary(self) -> str:
        return self.store.read().agent(self.agent_id).primary

    def _measure(self, stage: str, version: str, who: str) -> tuple[dict[str, RealTask], Measured]:
        tasks = {f"real-{self.run}-{stage}-{number:04}": task for number, task in enumerate(self.held_out)}
        self.left.at(stage)
        self.narrator.heading(f"{len(tasks)} held-out tasks, answered by {who}")
        answered = 0

        def advance() -> None:
            nonlocal answered
            answered += 1
            self.left.at(stage, answered / len(tasks))
            self.narrator.show(f"{answered} of {len(tasks)} answered", answered * 4 // len(tasks))

        with self.narrator.waiting("asking", key=0):
            return tasks, measure(self.access, self.plan.asked(tasks, version), self.plan.stall_s, advance)

    def _turns(self) -> Iterator[DemoTurn]:
        for number in range(1, self.loop_plan.turns + 1):
            if number > 1 and self.narrator.seconds > self.loop_plan.no_turn_after_s:
                self.narrator.say(f"no further turn: {self.loop_plan.no_turn_after_s:.0f} s are over (--no-turn-after)")
                return
            self.narrator.heading(f"Turn {number} of the ratchet: learn from the log, prove it on live traffic")
            if number > 1 and (share := self._full_marks()) >= GOOD_ENOUGH:
                self.narrator.say(f"no further turn: {share:.0%} of the primary's answers to users have full marks")
                return
            self.turn = number
            yield self.loop.turn(number)

    def _full_marks(self) -> float:
        """Of the primary's answers while it was tried, by the graded scorer: held-out tasks decide nothing."""
        primary, asked = self._primary, self.users.books.asked
        scores = [
            record.value.score
            for record in read_json(self.place.logs, INTERACTIONS, AnswerRow)
            if record.value.task_id in asked
            and record.value.adapter_version == primary
            and record.value.score is not None
        ]
        return sum(score == 1.0 for score in scores) / len(scores) if scores else 0.0

    def _at(self, stage: str, done: float) -> None:
        self.left.at(f"{stage} {self.turn}", done)

    def _counted(self, tasks: Mapping[str, RealTask], measured: Measured) -> Account:
        samples = [(row.task_id, row.sample) for row in measured.rows if row.sample is not None]
        failed = sum(status != "ok" for status in measured.answered.values())
        return Account(len(tasks), len(tasks) - len(measured.answered), failed, len(samples) - len(set(samples)))

    def _write(self, story: RealStory) -> None:
        found = gather(self.place.logs, self.place.adapters, (self.agent_id,))
        replace_file(self.place.report, page(found).encode())
        replace_file(self.place.result, real_page(story).encode())
        replace_file(self.place.result.with_suffix(".svg"), picture(story).encode())
