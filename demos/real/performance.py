"""The real demo on a fleet that is up: held-out tasks, turns of the ratchet, the same tasks again, the report."""

from __future__ import annotations

from dataclasses import dataclass, field

from demos.books import Users
from demos.demo_fleet import DemoFleet, run_name
from demos.held_out import Measured, dead_letters
from demos.loop import LoopPlan
from demos.real.page import RESULT, real_page
from demos.real.picture import picture
from demos.real.plan import GOOD_ENOUGH, MOST_OPEN, TEMPERATURE, RealPlan
from demos.real.story import RealStory, examples_of, first_answers, gains_of, right_answers
from demos.real.tasks import RealTask
from demos.real.time_left import TimeLeft
from ratchet.files.atomic_file import replace_file
from schemas.messages.work import BASE_VERSION
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.own_fleet import FleetPlace
from services.cli.narrator import Narrator


@dataclass
class RealPerformance:
    """The narrator tells what happens meanwhile; `left` is told how far it is."""

    access: FleetAccess
    place: FleetPlace
    agent_id: str
    plan: RealPlan
    loop_plan: LoopPlan
    narrator: Narrator
    left: TimeLeft
    model: str
    run: str = field(default_factory=run_name)

    def __post_init__(self) -> None:
        users = Users(
            self.access,
            self.plan.users(self.run),
            judging=self.plan.judging(self.run),
            stall_s=self.plan.stall_s,
            most_open=MOST_OPEN,
        )
        self.held_out = self.plan.held_out
        self.fleet = DemoFleet(
            self.access, self.place, self.agent_id, users, self.loop_plan, self.narrator, self.run, self.left.at
        )

    def perform(self) -> RealStory:
        """Raises CommandError, TimedOut, BusError, RegistryError, AdapterError, JournalError."""
        tasks_before, before = self._measure("before", BASE_VERSION, "the model as it was fetched")
        turns = tuple(self.fleet.turns(GOOD_ENOUGH))
        primary = self.fleet.primary
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
            decisions=self.fleet.decisions,
            books=self.fleet.books(before, after),
            dead_letters=dead_letters(self.access),
            seconds=self.narrator.seconds,
            page=str(self.place.root / RESULT),
        )
        self._write(story)
        return story

    def _measure(self, stage: str, version: str, who: str) -> tuple[dict[str, RealTask], Measured]:
        tasks = {f"real-{self.run}-{stage}-{number:04}": task for number, task in enumerate(self.held_out)}
        what = f"{len(tasks)} held-out tasks, answered by {who}"
        return tasks, self.fleet.measured(what, self.plan.asked(tasks, version), self.plan.stall_s, stage)

    def _write(self, story: RealStory) -> None:
        self.fleet.write_report()
        replace_file((self.place.root / RESULT), real_page(story).encode())
        replace_file((self.place.root / RESULT).with_suffix(".svg"), picture(story).encode())
