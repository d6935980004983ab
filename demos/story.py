"""The story of a demo: its turns, the bad adapter, its figures, and whether all is as promised. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, Protocol, TypeVar

from rich.console import RenderableType

from demos.books import Account
from ratchet.experiments.gain import Gain
from schemas.records.adapter_card import AdapterCard
from schemas.records.decision import Decision

Q = TypeVar("Q")
PROVED = ("stable", "superseded")


@dataclass(frozen=True, slots=True)
class DemoTraining:
    """The data and the course of a training: useful groups and their samples, seconds of training, last step's loss.
    `demonstrations`: inputs that were taught by one."""

    groups: int
    samples: int
    seconds: float | None
    steps: int | None
    loss: float | None
    mean_score: float | None
    demonstrations: int = 0

    @classmethod
    def of(cls, card: AdapterCard) -> DemoTraining:
        metrics = card.metrics
        return cls(
            card.data.groups,
            card.data.samples,
            _number(metrics.get("seconds")),
            None if (steps := _number(metrics.get("steps"))) is None else int(steps),
            _number(metrics.get("last_loss")),
            _number(metrics.get("mean_score")),
            len(card.data.taught),
        )


@dataclass(frozen=True, slots=True)
class DemoTurn:
    """One turn of the ratchet: a version trained, and how far it came. `tasks` is the traffic its verdict took."""

    version: str
    parent: str
    training: DemoTraining
    state: str
    tasks: int
    swap_s: float | None
    seconds: float

    @property
    def promoted(self) -> bool:
        return self.state in PROVED


@dataclass(frozen=True, slots=True)
class Sabotage:
    """The bad adapter. `tasks` are those it answered before it was stopped, out of `traffic` asked meanwhile."""

    version: str
    state: str
    tasks: int
    samples: int
    traffic: int
    seconds: float

    @property
    def stopped(self) -> bool:
        return self.state == "rolled_back"


@dataclass(frozen=True, slots=True)
class Example(Generic[Q]):
    """A held-out question, the first answer of either version, and whether each is right."""

    question: Q
    label: str
    answers: tuple[str, str]
    right: tuple[bool, bool]


class Figures(Protocol):
    """The figures that only one demo measured."""

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each promise about these figures that does not hold."""

    def as_dict(self) -> Mapping[str, Any]:
        """Return them as JSON has them."""

    def tables(self, primary: str) -> Sequence[RenderableType]:
        """Return them as they are shown, `primary` in their headings."""


def gain_faults(gain: Gain, promised: float, what: str) -> Iterator[str]:
    """Yield a sentence where the hidden verifier does not prove a gain, or where less than promised is right."""
    if not gain.significant:
        yield "the hidden verifier does not confirm a gain: the interval of the difference reaches 0"
    if gain.after.mean < promised:
        yield f"{gain.after.mean:.2f} of the held-out {what}, less than {promised}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The story of a demo. `page` is its report; with `rollback` a bad adapter had to be rolled back."""

    primary: str
    turns: tuple[DemoTurn, ...]
    decisions: tuple[Decision, ...]
    books: Account
    dead_letters: int
    seconds: float
    page: str | None
    figures: Figures
    rollback: bool = False
    sabotage: Sabotage | None = None

    @property
    def faults(self) -> tuple[str, ...]:
        """Sentences; none where the demo showed what it promises."""
        return tuple(self._faults())

    def _faults(self) -> Iterator[str]:
        yield from self.books.faults(self.dead_letters)
        if not any(turn.promoted for turn in self.turns):
            yield "no trained version was promoted"
        if self.rollback and (self.sabotage is None or not self.sabotage.stopped):
            yield "the bad adapter was not rolled back"
        yield from self.figures.faults()

    def as_dict(self) -> dict[str, Any]:
        bad = {"bad_adapter": None if self.sabotage is None else asdict(self.sabotage)} if self.rollback else {}
        return {
            "sound": not self.faults,
            "faults": self.faults,
            "seconds": self.seconds,
            "primary": self.primary,
            **self.figures.as_dict(),
            **bad,
            "turns": [asdict(turn) | {"promoted": turn.promoted} for turn in self.turns],
            "tasks": asdict(self.books) | {"dead_letters": self.dead_letters},
            "decisions": [decision.model_dump(mode="json") for decision in self.decisions],
            "report": self.page,
        }


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
