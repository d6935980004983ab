"""The tools demo on a fleet that is up: held-out tasks, turns of the ratchet, the same tasks again and blanked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from demos.books import Users
from demos.demo_fleet import DemoFleet, run_name
from demos.held_out import Measured, dead_letters
from demos.loop import LoopPlan
from demos.real.time_left import TimeLeft
from demos.story import DemoTurn
from demos.tools.plan import GOOD_ENOUGH, MOST_OPEN, ToolPlan
from demos.tools.story import Conversations, ToolStory, done_by_task, examples_of, first_outcomes
from demos.toy.tools.task import ToolTask
from ratchet.adapters.folder import adapter_folder
from ratchet.adapters.manifest import TRAINING_REPORT
from ratchet.experiments.gain import estimate, gain
from schemas.messages.work import BASE_VERSION
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.own_fleet import FleetPlace
from services.cli.narrator import Narrator


@dataclass
class ToolPerformance:
    """The narrator tells what happens meanwhile; `left` is told how far it is."""

    access: FleetAccess
    place: FleetPlace
    agent_id: str
    plan: ToolPlan
    loop_plan: LoopPlan
    narrator: Narrator
    left: TimeLeft
    run: str = field(default_factory=run_name)

    def __post_init__(self) -> None:
        users = Users(
            self.access,
            self.plan.users(self.run),
            judging=self.plan.judging(self.run),
            stall_s=self.plan.stall_s,
            most_open=MOST_OPEN,
        )
        self.fleet = DemoFleet(
            self.access, self.place, self.agent_id, users, self.loop_plan, self.narrator, self.run, self.left.at
        )

    def perform(self) -> ToolStory:
        """Raises CommandError, TimedOut, BusError, RegistryError, AdapterError, JournalError."""
        held_out = self.plan.held_out
        asked_before, before = self._measure("before", held_out, BASE_VERSION, self.plan.samples)
        turns = tuple(self.fleet.turns(GOOD_ENOUGH))
        primary = self.fleet.primary
        asked_after, after = self._measure("after", held_out, primary, self.plan.samples)
        asked_blanked, blanked = self._measure("blanked", self.plan.blanked, primary, 1)
        done = done_by_task(asked_before, before.rows), done_by_task(asked_after, after.rows)
        first = first_outcomes(asked_before, before.rows), first_outcomes(asked_after, after.rows)
        guessed = done_by_task(asked_blanked, blanked.rows)
        self.fleet.write_report()
        return ToolStory(
            seed=self.plan.seed,
            sandboxed=self.plan.sandboxed,
            primary=primary,
            gain=gain(*done),
            blanked=estimate([share for shares in guessed.values() for share in shares]),
            conversations=self._conversations(turns),
            examples=examples_of(held_out, *first),
            turns=turns,
            decisions=self.fleet.decisions,
            books=self.fleet.books(before, after, blanked),
            dead_letters=dead_letters(self.access),
            seconds=self.narrator.seconds,
            page=str(self.place.report),
        )

    def _measure(
        self, stage: str, tasks: Sequence[ToolTask], version: str, samples: int
    ) -> tuple[dict[str, ToolTask], Measured]:
        named = {f"tools-{self.run}-{stage}-{number:04}": task for number, task in enumerate(tasks)}
        how = " with tools that bring nothing" if stage == "blanked" else ""
        what = f"{len(named)} held-out tasks, {samples} × answered by {version}{how}"
        return named, self.fleet.measured(what, self.plan.asked(named, version, samples), self.plan.stall_s, stage)

    def _conversations(self, turns: Sequence[DemoTurn]) -> tuple[Conversations, ...]:
        adapters = self.fleet.store.folder
        reports = {
            turn.version: (adapter_folder(adapters, self.agent_id, turn.version) / TRAINING_REPORT).read_bytes()
            for turn in turns
        }
        return tuple(Conversations.of(version, json.loads(report)) for version, report in reports.items())
