"""The fleet that is up, as any demo drives it: turns of the ratchet, tasks that measure, the fleet's report."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from demos.adapter_status import AdapterStatusReader
from demos.books import Account, Users, account
from demos.held_out import Measured, measure
from demos.loop import Loop, LoopPlan
from demos.story import DemoTurn
from ratchet.adapters.registry import RegistryStore
from ratchet.files.atomic_file import replace_file
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import read_json
from ratchet.logs.rows import AnswerRow
from ratchet.service.settings import FleetSettings
from schemas.messages.task import Task
from schemas.records.decision import Decision
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.own_fleet import FleetPlace
from services.cli.narrator import Narrator
from services.cli.report.command import page
from services.cli.report.gathered import gather

T = TypeVar("T")
Advance = Callable[[], None]


def run_name() -> str:
    """A part of the ids of one demo's tasks, so that nothing is answered from the index."""
    return uuid.uuid4().hex[:8]


class DemoFleet:
    """`progress` is told the stage and how much of it is done, up to 1; of the n-th turn `collect n`, `train n`,
    `prove n`."""

    def __init__(
        self,
        access: FleetAccess,
        place: FleetPlace,
        agent_id: str,
        users: Users,
        plan: LoopPlan,
        narrator: Narrator,
        run: str,
        progress: Callable[[str, float], None] = lambda stage, done: None,
    ) -> None:
        self.access = access
        self.place = place
        self.agent_id = agent_id
        self.users = users
        self.narrator = narrator
        self.store = RegistryStore.from_settings(FleetSettings.read(adapters_dir=place.adapters, logs_dir=place.logs))
        self._plan = plan
        self._progress = progress
        self._turn = 1
        status = AdapterStatusReader(access, self.store, agent_id)
        self.loop = Loop(status, users, narrator, plan, run, self._at)

    @property
    def primary(self) -> str:
        return self.store.read().agent(self.agent_id).primary

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(decision for decision, _ in self.store.ledger.read())

    def turns(self, good_enough: float | None = None) -> Iterator[DemoTurn]:
        """As many as the plan has; none that begins too late. `good_enough`: nor where that share of the primary's
        answers to users has full marks."""
        for number in range(1, self._plan.turns + 1):
            if number > 1 and (reason := self._reason_to_stop(good_enough)):
                self.narrator.say(f"no further turn: {reason}")
                return
            self.narrator.heading(f"Turn {number} of the ratchet: learn from the log, prove it on live traffic")
            self._turn = number
            yield self.loop.turn(number)

    def _reason_to_stop(self, good_enough: float | None) -> str | None:
        if good_enough is not None and (share := self._full_marks()) >= good_enough:
            return f"{share:.0%} of the primary's answers to users have full marks"
        if self.narrator.seconds > self._plan.no_turn_after_s:
            return f"{self._plan.no_turn_after_s:.0f} s are over (--no-turn-after)"
        return None

    def asking(self, what: str, count: int, ask: Callable[[Advance], T], stage: str | None = None) -> T:
        """`ask` advances at each of so many answers."""
        if stage:
            self._progress(stage, 0.0)
        self.narrator.heading(what)
        answered = 0

        def advance() -> None:
            nonlocal answered
            answered += 1
            if stage:
                self._progress(stage, answered / count)
            self.narrator.show(f"{answered} of {count} answered", answered * 4 // count)

        with self.narrator.waiting("asking", key=0):
            return ask(advance)

    def measured(self, what: str, tasks: Sequence[Task], stall_s: float, stage: str) -> Measured:
        return self.asking(what, len(tasks), lambda advance: measure(self.access, tasks, stall_s, advance), stage)

    def books(self, *measured: Measured) -> Account:
        """Of the users and of what was measured."""
        return sum((of_measured(one) for one in measured), account(self.users.books, self.place.logs))

    def write_report(self) -> None:
        found = gather(self.place.logs, self.place.adapters, (self.agent_id,))
        replace_file(self.place.report, page(found).encode())

    def _full_marks(self) -> float:
        """Of the primary's answers while it was tried, by the fleet's scorer: held-out tasks decide nothing."""
        primary, asked = self.primary, self.users.books.asked
        scores = [
            record.value.score
            for record in read_json(self.place.logs, INTERACTIONS, AnswerRow)
            if record.value.task_id in asked
            and record.value.adapter_version == primary
            and record.value.score is not None
        ]
        return sum(score == 1.0 for score in scores) / len(scores) if scores else 0.0

    def _at(self, stage: str, done: float) -> None:
        self._progress(f"{stage} {self._turn}", done)


def of_measured(measured: Measured) -> Account:
    samples = [(row.task_id, row.sample) for row in measured.rows if row.sample is not None]
    failed = sum(status != "ok" for status in measured.answered.values())
    return Account(measured.asked, measured.asked - len(measured.answered), failed, len(samples) - len(set(samples)))
