"""The ways to learn that are compared: each takes the adapter of a policy one round further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from bench.learning.world import MAX_TOKENS, Experience, World
from ratchet.models.loading import LanguageModel, load_language_model
from ratchet.models.toy.sort_task import SortTask
from schemas.messages.base import BaseModelIdentity
from schemas.messages.response import Sample
from schemas.records.adapter_card import AdapterCard
from services.trainer.algorithms.algorithm import Algorithm, TrainerInputs
from services.trainer.algorithms.grpo import Grpo
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters, Hyperparameters, default_learning_rate
from services.trainer.algorithms.logged_trainer import LoggedTrainer, Tensors
from services.trainer.algorithms.policy import make_policy, save_policy
from services.trainer.algorithms.supervised import BestOfGroupSft

OFFLINE, RATIO_ONE, CONTROL, ONLINE = "offline GRPO", "ratio = 1", "best-of-group SFT", "online GRPO (TRL)"
BASE = BaseModelIdentity(name="small")

ONLINE_KNOBS: dict[str, Any] = {"clip_high": 0.28, "batch": 64}
"""Its answers are fresh: DAPO's own clipping. With 32 a step it did no better on the seeds of the tuning."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a learner is given: as many samples for each of them."""

    world: World
    parent: Path | None
    tasks: Sequence[SortTask]
    seed: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Learned:
    """`steps` of the optimiser."""

    adapter: Path
    steps: int


class Offline:
    """The product's way: samples are taken first, then an algorithm of the trainer learns from them."""

    def __init__(self, algorithm: Algorithm, knobs: Mapping[str, Any]) -> None:
        self._algorithm = algorithm
        self._knobs = algorithm.hyperparameters.read({}, knobs)

    def learn(self, given: Round) -> Learned:
        experience = given.world.experience(given.parent, given.tasks, given.seed)
        model = load_language_model(str(given.world.small))
        inputs = self._inputs(given, experience, model)
        trainer = self._algorithm.trainer(inputs, self._knobs)
        trainer.train()
        return Learned(_saved(inputs.policy, given), trainer.state.global_step)

    def _inputs(self, given: Round, experience: Experience, model: LanguageModel) -> TrainerInputs:
        knobs = self._knobs
        return TrainerInputs(
            policy=make_policy(model, given.parent, knobs, seed=given.seed, max_rank=64),
            tokenizer=model.tokenizer,
            samples=experience.samples,
            folder=given.folder / "trainer",
            seed=given.seed,
            temperature=1.0,
            learning_rate=rate_of(knobs, model),
            on_gpu=False,
        )


class RatioOne(Grpo):
    """GRPO that takes the present policy for the one that wrote the log: nothing is clipped, nothing holds it back."""

    def trainer(self, inputs: TrainerInputs, hyperparameters: GrpoHyperparameters) -> LoggedTrainer:
        trainer = super().trainer(inputs, hyperparameters)
        trainer.__class__ = _RatioOneTrainer
        return trainer


class _RatioOneTrainer(LoggedTrainer):
    def _compute_loss(self, model: Any, inputs: Tensors) -> torch.Tensor:
        present = {name: tensor for name, tensor in inputs.items() if name != "old_per_token_logps"}
        return torch.as_tensor(GRPOTrainer._compute_loss(self, model, present) * inputs["loss_share"])


class Online:
    """TRL's own GRPO: generates from the policy as it is, as many samples, as many passes over each."""

    def __init__(self, knobs: Mapping[str, Any]) -> None:
        self._knobs = GrpoHyperparameters.read({}, knobs)

    def learn(self, given: Round) -> Learned:
        from datasets import Dataset

        model = load_language_model(str(given.world.small))
        policy = make_policy(model, given.parent, self._knobs, seed=given.seed, max_rank=64)
        by_input = {task.input: task for task in given.tasks}

        def reward(prompts: list[Any], completions: list[Any], **_: Any) -> list[float]:
            scores: list[float] = []
            for prompt, completion in zip(prompts, completions, strict=True):
                answer = Sample(text=completion[0]["content"], finish_reason="stop")
                scores += given.world.scores(by_input[prompt[0]["content"]], [answer])
            return scores

        rows = [{"prompt": [{"role": "user", "content": task.input}]} for task in given.tasks]
        trainer = GRPOTrainer(
            policy,
            reward,
            args=self._arguments(given, rate_of(self._knobs, model)),
            train_dataset=Dataset.from_list(rows),
            processing_class=model.tokenizer,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return Learned(_saved(trainer.accelerator.unwrap_model(trainer.model), given), trainer.state.global_step)

    def _arguments(self, given: Round, learning_rate: float) -> GRPOConfig:
        knobs = self._knobs
        return GRPOConfig(
            output_dir=str(given.folder / "trl"),
            per_device_train_batch_size=knobs.batch,
            num_generations=given.world.judgement.group,
            num_iterations=knobs.passes(given.world.judgement.samples),
            num_train_epochs=1,
            max_completion_length=MAX_TOKENS,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            loss_type=knobs.loss,
            epsilon=knobs.clip_low,
            epsilon_high=knobs.clip_high,
            beta=knobs.beta,
            learning_rate=learning_rate,
            lr_scheduler_type="linear",
            max_grad_norm=knobs.max_grad_norm,
            seed=given.seed,
            use_cpu=True,
            bf16=False,
            activation_checkpointing=False,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )


def rate_of(knobs: Hyperparameters, model: LanguageModel) -> float:
    return knobs.learning_rate or default_learning_rate(model.model.num_parameters())


def learner(name: str, knobs: Mapping[str, Any]) -> Offline | Online:
    """With the product's defaults where `knobs` say nothing."""
    if name == ONLINE:
        return Online({**ONLINE_KNOBS, **knobs})
    algorithms: dict[str, Any] = {OFFLINE: Grpo(), RATIO_ONE: RatioOne(), CONTROL: BestOfGroupSft()}
    return Offline(algorithms[name], knobs)


def _saved(policy: Any, given: Round) -> Path:
    """A folder that the next round, and the agent's engine, can load."""
    folder = given.folder / "adapter"
    files = save_policy(policy, BASE, folder)
    config = files["adapter_config.json"]
    assert isinstance(config, bytes)
    (folder / "adapter_config.json").write_bytes(config)
    card = AdapterCard(base=BASE, algorithm="bench", created=datetime.now(UTC))
    (folder / "adapter_card.json").write_bytes(card.encode())
    return folder
