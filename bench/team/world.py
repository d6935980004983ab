"""The team's world: a writer drafts a task's letters in order, and a mender, who sees the draft alone, corrects it.

The writer loses letters, which nobody can mend; the mender mostly copies. Both slip. So each can gain, and neither can
do the other's work. A rollout is worth the share of its places that are right; the hidden verifier, which nothing is
trained or promoted by, asks for the whole answer. Tasks are split by their answers, as in bench.learning.
"""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.learning.tasks import held_out_tasks, training_task
from demos.toy.make import RECIPE_FILE, read_recipe
from demos.toy.recipe import SMALL
from demos.toy.sort_task import LENGTH, LETTERS, SortTask
from ratchet.models.loading import load_language_model
from ratchet.models.tokenization import prompt_ids
from schemas.messages.base import BaseModelIdentity
from schemas.messages.response import Sample
from schemas.messages.task import ChatMessage
from schemas.messages.work import Sampling
from schemas.records.adapter_card import AdapterCard
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.transformers_engine import TransformersEngine
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.hyperparameters import Hyperparameters
from services.trainer.algorithms.policy import make_policy, save_policy
from services.trainer.data.samples import TrainingSample
from services.trainer.run.choices import find_algorithm

RECIPE = replace(SMALL, name="team", steps=500, right_share=0.5, last_two_swapped_share=0.4)
LOSES, COPIES = 0.4, 0.5
"""Shares of the demonstrations: a draft in which a letter is another one, a mender that copies what it is given."""
ROLES = ("writer", "mender")
BASE = BaseModelIdentity(name="team")
ROWS_AT_ONCE = 256
HELD_OUT = 400
STEPS = 64

Prompt = str | tuple[ChatMessage, ...]
Vector = dict[str, Path | None]
"""The adapter of each role; None is the base model."""


def writer_prompt(task: SortTask) -> str:
    return f"write {task.input.removeprefix('sort: ')}"


def mender_prompt(draft: str) -> str:
    shown = "".join(one if one in LETTERS else "." for one in draft[:LENGTH])
    return f"mend: {shown.ljust(LENGTH, '.')}"


def demonstration(rng: random.Random) -> SortTask:
    """A demonstration of one of the roles, drawn at random, by a teacher more careless than the recipe says."""
    task = training_task(rng)
    draft = list(task.answer)
    if rng.random() < LOSES:
        draft[rng.randrange(LENGTH)] = rng.choice(LETTERS)
    if rng.random() < 0.5:
        return SortTask(writer_prompt(task), "".join(draft))
    if rng.random() < 0.5:
        draft[-1], draft[-2] = draft[-2], draft[-1]
    shown = "".join(draft)
    return SortTask(mender_prompt(shown), shown if rng.random() < COPIES else "".join(sorted(shown)))


def make_base(folder: Path) -> Path:
    """The model that both roles begin with, made once."""
    from demos.toy.pretraining import pretrain

    if read_recipe(folder, RECIPE, 0) is None:
        folder.mkdir(parents=True, exist_ok=True)
        pretrain(RECIPE, 0, folder, demonstration)
        report = {"recipe_sha256": RECIPE.sha256(0), "seed": 0, "recipe": asdict(RECIPE)}
        (folder / RECIPE_FILE).write_text(json.dumps(report) + "\n")
    return folder


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of a role."""

    prompt: array[int]
    sample: Sample


@dataclass(frozen=True, slots=True)
class Rollout:
    task: Any
    turns: dict[str, Turn]

    def worth(self, role: str = "mender") -> float:
        """Share of the places in which that role's answer is right: the team's is the mender's."""
        said, right = self.turns[role].sample.text, str(self.task.answer)
        return sum(one == other for one, other in zip(said, right, strict=False)) / LENGTH


class World:
    """One seed's tasks. `base`: the folder of the model."""

    roles: tuple[str, str] = ROLES
    """The role that drafts, and the one that is shown the draft."""
    rollout: type[Rollout] = Rollout
    temperature, max_tokens, at_once = 1.0, LENGTH + 3, ROWS_AT_ONCE
    steps, rate = STEPS, 1e-3
    units, asked_at_once = 500, 500
    """The most units of a live test, and how many are asked before it is looked at."""

    def __init__(self, base: Path, seed: int) -> None:
        self.base = base
        self.seed = seed

    def tasks(self, count: int, number: int) -> list[Any]:
        rng = random.Random(f"{self.seed} {number}")
        return [training_task(rng) for _ in range(count)]

    def first_prompt(self, task: Any) -> Prompt:
        return writer_prompt(task)

    def second_prompt(self, task: Any, draft: str) -> Prompt:
        return mender_prompt(draft)

    def rollouts(self, vector: Vector, tasks: Sequence[Any], group: int, number: int) -> list[list[Rollout]]:
        """A group for each task."""
        engine = TransformersEngine(
            partial(load_language_model, str(self.base)), seed=1_000 * self.seed + number, max_batch=self.at_once
        )
        engine.start()
        first, second = self.roles
        drafts = self._ask(engine, first, vector, [self.first_prompt(task) for task in tasks], group)
        pairs = zip(tasks, drafts, strict=True)
        shown = [self.second_prompt(task, turn.sample.text) for task, turns in pairs for turn in turns]
        mended = iter(turn for turns in self._ask(engine, second, vector, shown, 1) for turn in turns)
        return [
            [self.rollout(task, {first: draft, second: next(mended)}) for draft in turns]
            for task, turns in zip(tasks, drafts, strict=True)
        ]

    def _ask(
        self, engine: TransformersEngine, role: str, vector: Vector, prompts: Sequence[Prompt], group: int
    ) -> list[list[Turn]]:
        adapter = vector[role]
        if adapter is not None:
            engine.load_adapter(role, adapter)
        sampling = Sampling(n=group, max_tokens=self.max_tokens, temperature=self.temperature)
        name = role if adapter else None
        found, known = [], dict[bytes, "array[int]"]()
        for answer in engine.generate([GenerationRequest(one, sampling, name) for one in prompts]):
            assert isinstance(answer, Generation), answer
            prompt = array("l", answer.prompt_ids or ())
            prompt = known.setdefault(prompt.tobytes(), prompt)  # the trainer computes one object once
            found.append([Turn(prompt, sample) for sample in answer.samples])
        return found

    def train(
        self, parent: Path | None, groups: Sequence[Sequence[Rollout]], parts: Sequence[str], folder: Path, alone: str
    ) -> Path:
        """Return an adapter that learned from the segments of these roles, by the product's GRPO. What is compared in a
        group is the worth of the role `alone`, or of the team where that is its last role."""
        useful = [one for one in groups if len({rollout.worth(alone) for rollout in one}) > 1]
        samples = [
            _sample(group, number, rollout.turns[part], rollout.worth(alone), len(parts) > 1)
            for group, rollouts in enumerate(useful)
            for number, rollout in enumerate(rollouts)
            for part in parts
        ]
        algorithm = find_algorithm("grpo")
        batch = algorithm.hyperparameters.read({}, {}).batch
        epochs = max(1, round(self.steps / max(1, round(len(samples) / batch))))
        knobs = algorithm.hyperparameters.read({}, {"epochs": min(100, epochs), "learning_rate": self.rate})
        model = load_language_model(str(self.base))
        policy = make_policy(model, parent, knobs, seed=self.seed, max_rank=64)
        inputs = TrainerInputs(
            policy=policy,
            tokenizer=model.tokenizer,
            samples=samples,
            demonstrations=[],
            folder=folder / "trainer",
            seed=self.seed,
            temperature=self.temperature,
            learning_rate=self.rate,
            on_gpu=False,
            held_out=[],
        )
        algorithm.trainer(inputs, knobs).train()
        home = folder / "adapter"
        save_policy(policy, BASE, home)
        card = AdapterCard(base=BASE, algorithm="bench", created=datetime.now(UTC))
        (home / "adapter_card.json").write_bytes(card.encode())
        return home

    @torch.inference_mode()
    def held_out(self, vector: Vector) -> list[float]:
        """The hidden verifier: for each held-out task the probability that the mender's answer to a draft that was
        sampled is right."""
        tasks = held_out_tasks(self.seed)[:HELD_OUT]
        drafts = [group[0].turns["writer"].sample.text for group in self.rollouts(vector, tasks, 1, 999)]
        model = load_language_model(str(self.base))
        policy = make_policy(model, vector["mender"], Hyperparameters(), seed=0, max_rank=64).eval()
        prompts = [prompt_ids(model.tokenizer, mender_prompt(draft)) for draft in drafts]
        answers = [
            [*model.tokenizer.encode(task.answer, add_special_tokens=False), model.tokenizer.eos_token_id]
            for task in tasks
        ]
        found: list[float] = []
        for start in range(0, len(tasks), ROWS_AT_ONCE):
            rows = zip(prompts[start:][:ROWS_AT_ONCE], answers[start:][:ROWS_AT_ONCE], strict=True)
            ids = torch.tensor([prompt + answer for prompt, answer in rows])
            predicted = torch.log_softmax(policy(input_ids=ids).logits[:, -LENGTH - 2 : -1].float(), -1)
            right = predicted.gather(-1, ids[:, -LENGTH - 1 :, None]).squeeze(-1).sum(-1)
            found += right.exp().tolist()
        return found


def _sample(group: int, number: int, turn: Turn, worth: float, is_part: bool) -> TrainingSample:
    completion = array("l", turn.sample.completion_ids or ())
    logprobs = array("f", turn.sample.logprobs or ())
    rollout = number if is_part else None
    return TrainingSample(group, "v", worth, turn.prompt, completion, logprobs, rollout=rollout)
