"""An algorithm: what it learns from a group of scored answers, and with which loss. Found by name.

A new one is a class registered under the entry points group `ratchet.algorithms`; reading the log, refusing, the loop,
checkpoints and publishing are the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from ratchet.service.errors import TrainingRefused
from services.trainer.hyperparameters import Hyperparameters
from services.trainer.logged_trainer import LoggedTrainer
from services.trainer.plan import Plan
from services.trainer.samples import TrainingSample

GROUP = "ratchet.algorithms"


@dataclass(frozen=True, slots=True)
class TrainingTargets:
    """`used`: the numbers of the samples that take part, by group. `weights` of every sample, its advantage.

    `live`: False for a sample whose gradient is zero; it is counted, but not computed.
    """

    used: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    live: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class TrainerInputs:
    """All that a trainer is made from."""

    policy: Any
    tokenizer: Any
    samples: Sequence[TrainingSample]
    lessons: TrainingTargets
    plan: Plan
    folder: Path
    seed: int
    temperature: float
    learning_rate: float
    on_gpu: bool
    callbacks: Sequence[Any] = ()


class Algorithm(Protocol):
    """`hyperparameters` is the class that checks them; an instance of it is given to the methods."""

    hyperparameters: type[Hyperparameters]

    def lessons(self, groups: Sequence[Sequence[float]], hyperparameters: Any) -> TrainingTargets:
        """What to learn from the scores of each group; samples are numbered through all groups. Pure."""

    def trainer(self, course: TrainerInputs, hyperparameters: Any) -> LoggedTrainer:
        """Ready to train."""


def find_algorithm(name: str) -> Algorithm:
    """Raises TrainingRefused if there is none of that name, or it can't be loaded."""
    found = entry_points(group=GROUP)
    if name not in found.names:
        raise TrainingRefused(f"there is no algorithm {name!r}; installed are {', '.join(sorted(found.names))}")
    try:
        algorithm: Algorithm = found[name].load()()
    except (ImportError, AttributeError) as error:
        raise TrainingRefused(
            f"algorithm {name!r} can't be loaded ({error}): pip install 'ratchet[trainer]'"
        ) from error
    return algorithm
