"""The ways to learn that are compared: each takes the adapter of a policy one round further, in so many steps."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.learning.cells import HELD_OUT, SHOWN, share_wrong, tuned_as
from bench.learning.world import World, first_experience
from ratchet.models.loading import load_language_model
from schemas.messages.base import BaseModelIdentity
from schemas.records.adapter_card import AdapterCard
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters
from services.trainer.algorithms.policy import make_policy, save_policy, token_logps
from services.trainer.data.demonstrations import doubtful
from services.trainer.data.samples import TrainingSample
from services.trainer.data.selection import FEWEST_HELD_OUT
from services.trainer.run.choices import find_algorithm
from services.trainer.run.held_out import look_at_held_out, restore_best

BASE = BaseModelIdentity(name="small")


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a grid: optimiser steps a round, AdamW's rate; for preferences, the penalty on leaving the parent."""

    steps: int
    rate: float
    beta: float | None = None


GRID = (Point(64, 1e-3), Point(128, 5e-4), Point(128, 1e-3), Point(128, 2e-3))
GRIDS = {
    "kto": (Point(128, 5e-4, 0.5), Point(128, 1e-3, 0.5), Point(128, 5e-4, 2.0), Point(128, 1e-3, 2.0)),
}
"""The points where KTO does best, as many as GRID has."""


def point_of(learner: str, number: int) -> Point:
    return GRIDS.get(learner, GRID)[number]


@dataclass(frozen=True, slots=True)
class Round:
    """The input of a learner in a round: each gets the same tasks, and as many samples."""

    world: World
    models: Path
    base: str
    judgement: str
    parent: Path | None
    number: int
    folder: Path

    @property
    def seed(self) -> int:
        return 1_000 * self.world.seed + self.number

    @property
    def experience(self) -> list[TrainingSample]:
        if self.parent is None:
            return first_experience(self.models, self.base, self.judgement, self.world.seed)
        return self.world.experience(self.parent, self.number)


def learn(name: str, point: Point, given: Round) -> Path:
    """Return the adapter after the round."""
    if (learner := tuned_as(name)) in SHOWN:
        samples = given.experience if learner != "references" else []
        return _offline("grpo", point, given, samples, given.world.references(given.number, share_wrong(name)))
    if name == HELD_OUT:
        held_out, taught = _split(given.experience)
        return _offline("grpo", point, given, taught, held_out=held_out)
    return _offline(name, point, given, given.experience)


def _split(samples: Sequence[TrainingSample]) -> tuple[list[TrainingSample], list[TrainingSample]]:
    """The samples of the groups that the trainer would hold out, about, and all others."""
    groups = sorted({sample.group for sample in samples}, key=lambda group: random.Random(group).random())
    held_out = set(groups[: max(FEWEST_HELD_OUT, int(GrpoHyperparameters().held_out_groups * len(groups)))])
    parts = ([one for one in samples if (one.group in held_out) is held] for held in (True, False))
    return next(parts), next(parts)


def _offline(
    name: str,
    point: Point,
    given: Round,
    samples: Sequence[TrainingSample],
    references: Sequence[TrainingSample] = (),
    held_out: Sequence[TrainingSample] = (),
) -> Path:
    """The product's way: samples are taken first, then an algorithm of the trainer learns from them.

    References that look wrong to the policy are left out, and a run ends by what is held out, as in the trainer.
    """
    algorithm = find_algorithm(name)
    items = (
        len({sample.group for sample in samples}) if name == "best-of-group-sft" else len(samples) or len(references)
    )
    knobs = algorithm.hyperparameters.read({}, {})
    batch = knobs.batch if samples else knobs.for_demonstrations(items).batch
    epochs = math.ceil(point.steps / max(1, round(items / batch)))
    beta = {} if point.beta is None else {"beta": point.beta}
    mixture = {"mixture": "first"} if samples and references else {}
    knobs = algorithm.hyperparameters.read(
        {}, {"epochs": min(100, epochs), "learning_rate": point.rate} | beta | mixture
    )
    model = load_language_model(str(given.world.base))
    policy = make_policy(model, given.parent, knobs, seed=given.seed, max_rank=64)
    wrong = doubtful([-float(one.sum()) for one in token_logps(policy, references, 1.0)]) if references else []
    inputs = TrainerInputs(
        policy=policy,
        tokenizer=model.tokenizer,
        samples=samples,
        demonstrations=[sample for number, sample in enumerate(references) if number not in wrong],
        folder=given.folder / "trainer",
        seed=given.seed,
        temperature=1.0,
        learning_rate=point.rate,
        on_gpu=False,
        held_out=held_out,
    )
    trainer = algorithm.trainer(inputs, knobs)
    looks = look_at_held_out(trainer, inputs, lambda event: None)
    trainer.train()
    if looks is not None and looks.result.is_better:
        restore_best(trainer, policy, looks.result)
    return _save(policy, given.folder)


def _save(policy: Any, folder: Path) -> Path:
    """Save the policy in a folder that the next round, and the agent's engine, can load."""
    home = folder / "adapter"
    save_policy(policy, BASE, home)
    card = AdapterCard(base=BASE, algorithm="bench", created=datetime.now(UTC))
    (home / "adapter_card.json").write_bytes(card.encode())
    return home
