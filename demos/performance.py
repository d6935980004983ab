"""The whole demo on a fleet that is up, from the first held-out answer to the report page. Returns its story."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import RenderableType

from demos.books import Account, Users
from demos.demo_fleet import DemoFleet, run_name
from demos.held_out import HeldOutPlan, HeldOutRun, ask_held_out, dead_letters, held_out_tasks
from demos.held_out_report import HeldOutReport
from demos.held_out_view import render_held_out
from demos.loop import LoopPlan
from demos.story import DemoTurn, Sabotage, Story
from demos.tasks import golden_tasks, users_tasks
from ratchet.experiments.gain import gain, samples_needed, served_gain
from ratchet.logs.names import INTERACTIONS, active_path
from schemas.messages.task import Task
from schemas.messages.work import BASE_VERSION
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.own_fleet import FleetPlace
from services.cli.narrator import Narrator

GOLDEN_TASKS = 32

Show = Callable[[RenderableType], None]


def golden_set(plan: HeldOutPlan) -> list[Task]:
    """What the gate asks a candidate: tasks that are held out too, and none of those that measure."""
    return golden_tasks(GOLDEN_TASKS, without=frozenset(held_out_tasks(plan).values()))


def write_golden_set(place: FleetPlace, agent_id: str, tasks: Sequence[Task]) -> None:
    home = place.adapters / agent_id
    home.mkdir(parents=True, exist_ok=True)
    (home / "golden.jsonl").write_bytes(b"".join(task.encode() + b"\n" for task in tasks))


@dataclass
class Performance:
    """`show` prints a table of results; the narrator tells what happens meanwhile."""

    access: FleetAccess
    place: FleetPlace
    agent_id: str
    held_out: HeldOutPlan
    plan: LoopPlan
    narrator: Narrator
    show: Show
    run: str = field(default_factory=run_name)

    def __post_init__(self) -> None:
        fresh = users_tasks(self.held_out.seed, self.run, samples=self.held_out.samples)
        users = Users(self.access, fresh, stall_s=self.held_out.stall_s)
        self.fleet = DemoFleet(self.access, self.place, self.agent_id, users, self.plan, self.narrator, self.run)

    def perform(self) -> Story:
        """Raises CommandError, TimedOut, BusError, RegistryError, AdapterError, JournalError."""
        before = self._measure("the base model")
        self.show(render_held_out(before.report, active_path(self.place.logs, INTERACTIONS)))
        turns = tuple(self.fleet.turns())
        sabotage = self._sabotage(turns)
        after = self._measure(f"the primary, {self.fleet.primary}")
        return self._story(before, after, turns, sabotage)

    def _measure(self, who: str) -> HeldOutRun:
        count = self.held_out.tasks
        what = f"{count} held-out tasks, answered by {who}"
        return self.fleet.asking(what, count, lambda advance: ask_held_out(self.access, self.held_out, advance))

    def _sabotage(self, turns: tuple[DemoTurn, ...]) -> Sabotage | None:
        if not any(turn.promoted for turn in turns):
            return None
        self.narrator.heading("A bad adapter is put past the gate")
        return self.fleet.loop.sabotage(self.held_out.samples)

    def _story(
        self, before: HeldOutRun, after: HeldOutRun, turns: tuple[DemoTurn, ...], sabotage: Sabotage | None
    ) -> Story:
        self.fleet.write_report()
        primary = self.fleet.primary
        return Story(
            first=before.report,
            turns=turns,
            sabotage=sabotage,
            primary=primary,
            verifier=gain(before.right(BASE_VERSION), after.right(primary)),
            judge=gain(before.scores(BASE_VERSION), after.scores(primary)),
            served=served_gain(before.answered(BASE_VERSION), after.answered(primary)),
            saved=samples_needed(before.answered(BASE_VERSION), after.answered(primary)),
            decisions=self.fleet.decisions,
            books=self.fleet.books() + _counted(before.report) + _counted(after.report),
            dead_letters=dead_letters(self.access),
            seconds=self.narrator.seconds,
            page=str(self.place.report),
        )


def _counted(report: HeldOutReport) -> Account:
    return Account(report.tasks, report.lost, report.failed, report.logged_twice)
