"""What a demo came to: its turns, the bad adapter, the gain, and whether all is as promised. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from demos.books import Account
from demos.held_out_report import HeldOutReport
from ratchet.experiments.gain import Gain, Saved
from schemas.records.adapter_card import AdapterCard
from schemas.records.decision import Decision

PROVED = ("stable", "superseded")


@dataclass(frozen=True, slots=True)
class DemoTraining:
    """What a version was made of: useful groups and their samples, seconds of training, last step's loss."""

    groups: int
    samples: int
    seconds: float | None
    steps: int | None
    loss: float | None
    mean_score: float | None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStory(ABC):
    """What any demo tells, whatever its tasks were. `page` is its report."""

    primary: str
    turns: tuple[DemoTurn, ...]
    decisions: tuple[Decision, ...]
    books: Account
    dead_letters: int
    seconds: float
    page: str | None

    @property
    def faults(self) -> tuple[str, ...]:
        """Sentences; none where the demo showed what it promises."""
        return tuple(self._faults())

    def _faults(self) -> Iterator[str]:
        yield from self.books.faults(self.dead_letters)
        if not any(turn.promoted for turn in self.turns):
            yield "no trained version was promoted"
        yield from self._own_faults()

    @abstractmethod
    def _own_faults(self) -> Iterator[str]:
        """Against what only this demo promises."""

    @abstractmethod
    def _own_figures(self) -> Mapping[str, Any]:
        """What only this demo measured, as JSON has it."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "sound": not self.faults,
            "faults": self.faults,
            "seconds": self.seconds,
            "primary": self.primary,
            **self._own_figures(),
            "turns": [asdict(turn) | {"promoted": turn.promoted} for turn in self.turns],
            "tasks": asdict(self.books) | {"dead_letters": self.dead_letters},
            "decisions": [decision.model_dump(mode="json") for decision in self.decisions],
            "report": self.page,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Story(DemoStory):
    """`verifier` and `judge`: the gain on held-out tasks from the base model to `primary`, of a single sample.

    `served`: of the answer a user gets, the best-scored of the group, by the verifier; `saved`: the samples that this
    quality does not need any more.
    """

    first: HeldOutReport
    sabotage: Sabotage | None
    verifier: Gain
    judge: Gain
    served: Gain
    saved: Saved

    def _own_faults(self) -> Iterator[str]:
        if self.sabotage is None or not self.sabotage.stopped:
            yield "the bad adapter was not rolled back"
        if not self.verifier.significant:
            yield "the verifier does not confirm a gain: the interval of the difference reaches 0"

    def _own_figures(self) -> Mapping[str, Any]:
        return {
            "held_out": {
                "verifier": self.verifier.as_dict(),
                "judge": self.judge.as_dict(),
                "served": self.served.as_dict(),
            },
            "samples_saved": asdict(self.saved) | {"samples": self.saved.samples},
            "bad_adapter": None if self.sabotage is None else asdict(self.sabotage),
            "first": self.first.as_dict(),
        }


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
