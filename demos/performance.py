"""A demo on a fleet of its own: held-out tasks, turns of the ratchet, the same tasks again, the report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic

from demos.adapter_status import AdapterStatusReader
from demos.books import Measured, Users, account, dead_letters, measure
from demos.demo import Demo, Q
from demos.loop import Loop, LoopPlan
from demos.story import DemoTurn, Sabotage, Story
from demos.story_view import render_story
from demos.time_left import TimeLeft, further_turns
from ratchet.adapters.registry import RegistryStore
from ratchet.files.atomic_file import replace_file
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import read_json
from ratchet.logs.rows import AnswerRow
from ratchet.service.settings import FleetSettings
from schemas.messages.task import Task
from schemas.messages.work import BASE_VERSION
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.own_fleet import FleetPlace, fleet_of_its_own
from services.cli.narrator import Narrator
from services.cli.report.command import gather, page
from services.cli.terminal import err, out, print_json, say

AGENT = "small"


def show_demo(demo: Demo[Any], place: FleetPlace, options: FleetOptions, *, keep: bool, as_json: bool) -> Story:
    """Run the demo and print its story. Raises CommandError, TimedOut, BusError, RegistryError, AdapterError,
    JournalError."""
    left = time_left(demo)
    narrator = Narrator(err, left=left.seconds if left else None, quiet_s=demo.quiet_s)
    models = FleetSettings.read().models_dir
    model = demo.model(models, narrator.say, narrator.heading)
    settings = demo.settings(place) | ({"RATCHET_MODELS_DIR": str(models)} if model else {})
    options = demo.options(replace(options, model=model) if model else options, place)

    def prepare(namespace: str) -> None:
        write_golden_set(place, replace(demo, namespace=namespace).golden_tasks())
        for name, text in demo.files().items():
            (place.root / name).write_text(text, encoding="utf-8")
        narrator.heading("The models and the fleet")

    with fleet_of_its_own(place, options, settings, demo.sizes.timeout, prepare=prepare, keep=keep):
        narrator.say(f"Watch it learn: http://127.0.0.1:{options.port_base}/")
        access = FleetAccess.here()
        demo = replace(demo, namespace=access.namespace)
        with demo.answering(access, place):
            story = Performance(access, place, demo, narrator, left).perform()
        if as_json:
            print_json(story.as_dict())
        else:
            out.print(render_story(story), soft_wrap=False)
    for line in demo.last_words(place, stays=keep):
        say(line)
    return story


def time_left(demo: Demo[Any]) -> TimeLeft | None:
    """Return how long the demo still takes, where its pace is known."""
    sizes, pace = demo.sizes, demo.pace
    if pace is None:
        return None
    stages = pace.stages(
        tasks=sizes.tasks,
        samples=sizes.samples,
        group=demo.group,
        groups=sizes.groups,
        turns=sizes.turns,
        also=tuple(demo.also_measured(())),
    )
    return TimeLeft(stages, time.monotonic, further_turns(sizes.turns), sizes.no_turn_after)


def write_golden_set(place: FleetPlace, tasks: Sequence[Task]) -> None:
    home = place.adapters / AGENT
    home.mkdir(parents=True, exist_ok=True)
    (home / "golden.jsonl").write_bytes(b"".join(task.encode() + b"\n" for task in tasks))


class Performance(Generic[Q]):
    """`narrator` tells what happens, and `left` is told how far it is."""

    def __init__(
        self,
        access: FleetAccess,
        place: FleetPlace,
        demo: Demo[Q],
        narrator: Narrator,
        left: TimeLeft | None = None,
    ) -> None:
        self._access, self._place, self._demo = access, place, demo
        self._narrator, self._left = narrator, left
        sizes = demo.sizes
        self._users = Users(
            access, demo.users(), judging=demo.judging(), stall_s=sizes.timeout, most_open=demo.most_open
        )
        self._store = RegistryStore.from_settings(FleetSettings.read(adapters_dir=place.adapters, logs_dir=place.logs))
        plan = LoopPlan(sizes.groups, patience_s=sizes.timeout, training_s=demo.training_s, seed=demo.seed)
        status = AdapterStatusReader(access, self._store, AGENT)
        self._loop = Loop(status, self._users, narrator, plan, demo.run, self._show_turn)
        self._turn = 1

    def perform(self) -> Story:
        """Return the story once all is measured. Raises as `show_demo`."""
        held_out, samples = self._demo.held_out(), self._demo.sizes.samples
        measured = {"before": self._measure("before", held_out, BASE_VERSION, samples)}
        turns = tuple(self._turns())
        self._ask_on()
        sabotage = self._sabotage(turns)
        primary = self._primary
        measured["after"] = self._measure("after", held_out, primary, samples)
        for stage, questions in self._demo.also_measured(held_out).items():
            measured[stage] = self._measure(stage, questions, primary, 1)
        found = gather(self._place.logs, self._place.adapters, (AGENT,))
        replace_file(self._place.report, page(found).encode())
        story = Story(
            primary=primary,
            turns=turns,
            decisions=tuple(decision for decision, _ in self._store.ledger.read()),
            books=sum((one.account for one in measured.values()), account(self._users.books, self._place.logs)),
            dead_letters=dead_letters(self._access),
            seconds=self._narrator.seconds,
            page=None,
            figures=self._demo.figures(measured, turns, self._place.adapters / AGENT),
            rollback=self._demo.bad_adapter,
            sabotage=sabotage,
        )
        return replace(story, page=str(self._demo.write_pages(story, self._place)))

    def _measure(self, stage: str, questions: Sequence[Q], version: str, samples: int) -> Measured[Q]:
        tasks = self._demo.name_questions(stage, questions)
        who = "the base model" if version == BASE_VERSION else f"the primary, {version}"
        how = "" if stage in ("before", "after") else f" ({stage})"
        self._progress(stage, 0.0)
        self._narrator.heading(f"{len(tasks)} held-out tasks, {samples} × answered by {who}{how}")
        messages = self._demo.measuring_tasks(tasks, version, samples)
        with self._narrator.counting(len(tasks), partial(self._progress, stage)) as advance:
            return measure(self._access, tasks, messages, self._demo.sizes.timeout, advance)

    def _turns(self) -> Iterator[DemoTurn]:
        """Yield as many as there are to be; none begins too late, or where the answers to users are good enough."""
        for number in range(1, self._demo.sizes.turns + 1):
            if number > 1 and (reason := self._reason_to_stop()):
                self._narrator.say(f"no further turn: {reason}")
                return
            self._narrator.heading(f"Turn {number} of the ratchet: learn from the log, prove it on live traffic")
            self._turn = number
            yield self._loop.turn(number)

    def _ask_on(self) -> None:
        """Have users ask after the turns, where the demo wants it."""
        if (wanted := self._demo.enough_asked(self._access, self._store)) is None:
            return
        is_enough, most, further = wanted
        self._narrator.heading("Users go on asking")
        with self._narrator.waiting("users ask", key=0):
            self._users.ask_until(is_enough, most=most, judging=True)
            self._users.ask_until(lambda: False, most=further, judging=True)

    def _reason_to_stop(self) -> str | None:
        enough, latest = self._demo.good_enough, self._demo.sizes.no_turn_after
        if enough is not None and (share := self._full_marks()) >= enough:
            return f"{share:.0%} of the primary's answers to users have full marks"
        if self._narrator.seconds > latest:
            return f"{latest:.0f} s are over (--no-turn-after)"
        return None

    def _full_marks(self) -> float:
        """Return the share in the primary's answers to users, by the fleet's scorer."""
        primary, asked = self._primary, self._users.books.asked
        rows = (record.value for record in read_json(self._place.logs, INTERACTIONS, AnswerRow))
        own = (row for row in rows if row.task_id in asked and row.adapter_version == primary)
        scores = [row.score for row in own if row.score is not None]
        return sum(score == 1.0 for score in scores) / len(scores) if scores else 0.0

    def _sabotage(self, turns: tuple[DemoTurn, ...]) -> Sabotage | None:
        if not self._demo.bad_adapter or not any(turn.promoted for turn in turns):
            return None
        self._narrator.heading("A bad adapter is put past the gate")
        return self._loop.sabotage(self._demo.sizes.samples)

    @property
    def _primary(self) -> str:
        return self._store.read().agent(AGENT).primary

    def _progress(self, stage: str, done: float) -> None:
        if self._left is not None:
            self._left.at(stage, done)

    def _show_turn(self, stage: str, done: float) -> None:
        self._progress(f"{stage} {self._turn}", done)
