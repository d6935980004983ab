"""A demo: what is asked, how it is graded, with which settings, what it promises and what it shows.

They differ in their `Demo` alone: `demos/sort/`, `demos/real/`, `demos/mail/`, `demos/tools/` and `demos/cascade/`.
What they do with it is in `demos/performance.py`, the same for all.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from demos.books import Measured
from demos.story import DemoTurn, Example, Figures, Story
from demos.time_left import Pace
from ratchet.adapters.registry import RegistryStore
from ratchet.logs.rows import AnswerRow
from schemas.messages.base import Metadata
from schemas.messages.task import Task
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.own_fleet import FleetPlace

Q = TypeVar("Q")
SOON: Mapping[str, str] = {"RATCHET_TRAIN_AFTER_GROUPS": "0", "RATCHET_EXPERIMENT_MIN_AGE_S": "0"}
"""Settings of every demo: it asks for trainings itself. What a promotion must prove is as in any fleet."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The held-out tasks, the answers to each, the turns, the tasks to learn from in each, and two times in seconds."""

    tasks: int
    samples: int
    turns: int
    groups: int
    no_turn_after: float
    timeout: float


def run_name() -> str:
    """Return a part of the ids of one demo's tasks, so that nothing is answered from the index."""
    return uuid.uuid4().hex[:8]


@dataclass(frozen=True, kw_only=True)
class Demo(ABC, Generic[Q]):
    """A family of tasks. `namespace` is the one of the demo's queues; it is known once its fleet is started."""

    folder: ClassVar[str]
    prefix: ClassVar[str]
    source: ClassVar[str]
    """The fleet's folder, the beginning of the ids of its tasks, and the command."""
    golden_samples: ClassVar[int | None] = None
    proof_samples: ClassVar[int | None] = None
    """Answers to a task of the gate, and while a candidate is tried; None: as many as to any."""
    good_enough: ClassVar[float | None] = None
    """Share of full marks of the primary's answers to live traffic at which no further turn begins."""
    hidden: ClassVar[tuple[str, ...]] = ("reference", "criteria")
    most_open: ClassVar[int] = 16
    training_s: ClassVar[float | None] = None
    quiet_s: ClassVar[float] = 5.0
    bad_adapter: ClassVar[bool] = False
    """Tells whether a bad adapter is put past the gate in the end, and must be rolled back."""
    next_command: ClassVar[str]

    sizes: Sizes
    seed: int = 1
    namespace: str = ""
    run: str = field(default_factory=run_name)

    @property
    def group(self) -> int:
        """Answers to a task to learn from."""
        return self.sizes.samples

    @property
    def pace(self) -> Pace | None:
        """Return how long each part takes; None: what is left is not told."""
        return None

    def model(self, models: Path, say: Callable[[str], None], heading: Callable[[str], None]) -> str | None:
        """Bring the model into this folder. Return its name or folder; None: the one of any fleet."""
        return None

    def options(self, options: FleetOptions, place: FleetPlace) -> FleetOptions:
        return options

    @abstractmethod
    def settings(self, place: FleetPlace) -> dict[str, str]:
        """Return the settings that differ from those of any fleet."""

    def files(self) -> Mapping[str, str]:
        """Return the files that the fleet reads at its start, by their name in the demo's folder."""
        return {}

    def answering(self, access: FleetAccess, place: FleetPlace) -> AbstractContextManager[None]:
        """Run within the block what answers the tasks beside the fleet."""
        return nullcontext()

    @abstractmethod
    def held_out(self) -> list[Q]:
        """Return the questions that measure: no model was trained on them."""

    @abstractmethod
    def golden(self) -> list[Q]:
        """Return what the gate asks a candidate: none of those that measure."""

    @abstractmethod
    def learning(self) -> Iterator[Q]:
        """Yield what users ask to learn from, without end."""

    def live(self) -> Iterator[Q] | None:
        """Return what users ask while a candidate is tried; None: the same."""
        return None

    @abstractmethod
    def fields(self, question: Q) -> dict[str, Any]:
        """Return the fields of a Task: the input, and what the scorer needs."""

    @abstractmethod
    def is_right(self, question: Q, row: AnswerRow) -> bool:
        """Tell by rules that nobody in the fleet has."""

    @abstractmethod
    def label(self, question: Q) -> str:
        """Return the question for people; no two of the same label."""

    def answer(self, row: AnswerRow) -> str:
        return row.response or ""

    def also_measured(self, held_out: Sequence[Q]) -> dict[str, Sequence[Q]]:
        """Return what the primary is asked once each, after all else, by the name of the stage."""
        return {}

    @abstractmethod
    def figures(self, measured: Mapping[str, Measured[Q]], turns: Sequence[DemoTurn], adapters: Path) -> Figures:
        """Return what the answers come to, by stage; `adapters` is the folder of the agent's versions."""

    def enough_asked(self, access: FleetAccess, store: RegistryStore) -> tuple[Callable[[], bool], int, int] | None:
        """Return what tells whether users have asked enough after the turns, the most that they ask till then, and how
        many more after it; None: they ask no more."""
        return None

    def write_pages(self, story: Story, place: FleetPlace) -> Path:
        """Write what lies beside the fleet's report. Return the page to look at."""
        return place.report

    def last_words(self, place: FleetPlace, *, stays: bool) -> Iterable[str]:
        return ()

    def message(self, question: Q, task_id: str, samples: int | None) -> Task:
        metadata = Metadata(timestamp=datetime.now(UTC), source=self.source)
        return Task(task_id=task_id, metadata=metadata, samples=samples, **self.fields(question))

    def golden_tasks(self) -> list[Task]:
        asked = enumerate(self.golden())
        return [self.message(question, f"golden-{number}", self.golden_samples) for number, question in asked]

    def users(self) -> Iterator[Task]:
        return self._stream("user", self.learning(), self.group)

    def judging(self) -> Iterator[Task] | None:
        live = self.live()
        return None if live is None else self._stream("live", live, self.proof_samples or self.group)

    def _stream(self, who: str, questions: Iterable[Q], samples: int) -> Iterator[Task]:
        for number, question in enumerate(questions):
            yield self.message(question, f"{self.prefix}-{self.run}-{who}-{number:05}", samples)

    def name_questions(self, stage: str, questions: Iterable[Q]) -> dict[str, Q]:
        """Return the questions by the id of their task."""
        return {f"{self.prefix}-{self.run}-{stage}-{number:04}": one for number, one in enumerate(questions)}

    def measuring_tasks(self, tasks: Mapping[str, Q], version: str, samples: int) -> list[Task]:
        """Return the tasks that measure a version, without what is right: they teach nothing."""
        hidden: dict[str, Any] = dict.fromkeys(self.hidden) | {"adapter_version": version}
        return [self.message(one, name, samples).model_copy(update=hidden) for name, one in tasks.items()]

    def right_answers(self, measured: Measured[Q]) -> dict[str, list[float]]:
        """Return by label 1.0 for each right answer and 0.0 for each other."""
        found: dict[str, list[float]] = {}
        for question, row in measured.samples():
            found.setdefault(self.label(question), []).append(float(self.is_right(question, row)))
        return found

    def examples(self, chosen: Iterable[Q], before: Measured[Q], after: Measured[Q]) -> tuple[Example[Q], ...]:
        """Return of each question the first answer of either version."""
        first, then = ({one: row for one, row in m.samples() if row.sample == 0} for m in (before, after))
        nothing = AnswerRow(task_id="")
        pairs = ((one, first.get(one, nothing), then.get(one, nothing)) for one in chosen)
        return tuple(
            Example(
                one,
                self.label(one),
                (self.answer(was), self.answer(now)),
                (self.is_right(one, was), self.is_right(one, now)),
            )
            for one, was, now in pairs
        )
