"""The interface of an algorithm to the loop that runs it: hyperparameters, and a trainer made from samples.

Reading the log, refusing, checkpoints, the report and publishing are the same for all (services/trainer/run/).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ratchet.grammars.masks import Grammars
from ratchet.logs.groups import Baseline, peers
from ratchet.service.errors import TrainingRefused
from services.trainer.algorithms.hyperparameters import Hyperparameters
from services.trainer.data.samples import TrainingSample, rollouts_of


@dataclass(frozen=True, slots=True)
class TrainerInputs:
    """All that a trainer is made from.

    `policy`: a PeftModel, whose adapter is to be trained in place. `samples` in the order of their groups, with the
    tokens and log-probabilities that were logged. `folder`: where checkpoints go. `callbacks`, which report the steps
    and ask for the checkpoints, must be handed to the trainer.
    """

    policy: Any
    tokenizer: Any
    samples: Sequence[TrainingSample]
    folder: Path
    seed: int
    temperature: float
    learning_rate: float
    on_gpu: bool
    processes: int = 1
    callbacks: Sequence[Any] = ()
    demonstrations: Sequence[TrainingSample] = ()
    """Samples to learn from as well, by algorithms whose hyperparameters have `demonstrations`."""
    held_out: Sequence[TrainingSample] = ()
    """Samples that the run looks at, and does not learn from."""
    grammars: Grammars | None = None
    """Grammars for the tokenizer, where samples were held to any."""

    @property
    def groups(self) -> list[list[TrainingSample]]:
        """The samples of each task, for what compares whole answers.

        Raises TrainingRefused where some are conversations, of which only a part was sampled, or were held to
        a grammar.
        """
        if count := sum(bool(sample.grammars) for sample in self.samples):
            raise TrainingRefused(
                f"this algorithm replays no grammars, and {count:,} samples of the window were held to one: take grpo, "
                "masked-grpo, weighted-sft or best-of-group-sft"
            )
        if count := sum(sample.sampled is not None for sample in self.samples):
            raise TrainingRefused(
                f"this algorithm compares whole answers, and the window has {count:,} segments of conversations, in "
                "which only some tokens were sampled: take grpo, masked-grpo, weighted-sft or best-of-group-sft"
            )
        return [list(group) for _, group in itertools.groupby(self.samples, key=lambda sample: sample.group)]

    @property
    def rollouts(self) -> list[tuple[int, ...]]:
        """The numbers of the samples that are the segments of each rollout: one each, where there are only answers."""
        return rollouts_of(self.samples)

    @property
    def scores(self) -> list[list[float]]:
        """The scores of each group, one a rollout."""
        return [[one.score for one in group] for group in self._firsts]

    def peers(self, baseline: Baseline) -> list[list[list[int]]]:
        """Return for each group the numbers of the rollouts in it that are compared with one another."""
        return [peers([one.program for one in group], baseline) for group in self._firsts]

    @property
    def _firsts(self) -> list[list[TrainingSample]]:
        """Return for each group the first segment of each rollout."""
        firsts = [self.samples[rows[0]] for rows in self.rollouts]
        return [list(group) for _, group in itertools.groupby(firsts, key=lambda one: one.group)]


class PolicyTrainer(Protocol):
    """The part of a trainer that the loop uses. `transformers.Trainer` has it, so all of TRL's have."""

    @property
    def args(self) -> Any: ...

    @property
    def state(self) -> Any: ...

    def train(self, resume_from_checkpoint: str | None = None) -> Any:
        """Train, from the checkpoint on if one is given."""

    def add_callback(self, callback: Any) -> None:
        """Add a callback, before `train`."""


class Algorithm(Protocol):
    """`hyperparameters` is the class that checks them; an instance of it is given to `trainer`."""

    hyperparameters: type[Hyperparameters]

    def trainer(self, inputs: TrainerInputs, hyperparameters: Any) -> PolicyTrainer:
        """Return a trainer that is ready to train. It alone decides what is learned from a sample."""
