"""The learner's world: a small model answers sort tasks, a bigger one scores, and nobody it learns from sees the truth.

There are two judgements. With the sharp one the best of eight answers is nearly always right, so that copying it is
hard to beat. The rough one is what most traffic has: fewer answers to a task, marks in tenths, and another mark when
asked again. Answers are sampled as the agent samples them, by the same code; groups that spread no wider than the
judge's noise are left out, as the trainer does.
"""

from __future__ import annotations

import random
import statistics
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from bench.learning.tasks import held_out_tasks, training_task
from bench.sampling import sample_answers
from demos.toy.sort_task import SortTask
from ratchet.models.loading import load_language_model
from ratchet.models.tokenization import prompt_ids
from schemas.messages.response import Sample
from schemas.messages.work import Sampling
from services.agent.engines.engine import Generation
from services.scorer.strategies.likelihood import TokenRow, likelihoods, rows_of
from services.scorer.strategies.strategy import Answer, ScoringRequest
from services.trainer.algorithms.hyperparameters import Hyperparameters
from services.trainer.algorithms.policy import make_policy
from services.trainer.data.samples import TrainingSample
from services.trainer.data.score_noise import ScoreNoise

MAX_TOKENS = 12
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Judgement:
    """`tasks` a round, answered `group` times each; the bigger model's scores with normal `noise` (a standard
    deviation) on top, cut to [0, 1], rounded to `digits`."""

    tasks: int
    group: int
    noise: float = 0.0
    digits: int = 9

    @property
    def samples(self) -> int:
        return self.tasks * self.group


JUDGEMENTS = {"sharp": Judgement(tasks=64, group=8), "rough": Judgement(tasks=128, group=4, noise=0.2, digits=1)}


class World:
    """One seed's tasks. `models`: the folder that models.py fills."""

    def __init__(self, models: Path, base: str, judgement: str, seed: int) -> None:
        self.judgement = JUDGEMENTS[judgement]
        self.base = models / base
        self.seed = seed
        self._judge = load_language_model(str(models / "judge"))

    def tasks(self, number: int) -> list[SortTask]:
        """Draw the tasks of a round."""
        rng = random.Random(1_000 * self.seed + number)
        return [training_task(rng) for _ in range(self.judgement.tasks)]

    def experience(self, adapter: Path | None, number: int) -> list[TrainingSample]:
        """Return what a policy did on the tasks of a round, as the trainer reads it from the log."""
        tasks = self.tasks(number)
        sampling = Sampling(n=self.judgement.group, max_tokens=MAX_TOKENS)
        prompts = [task.input for task in tasks]
        answers, _ = sample_answers(str(self.base), prompts, sampling, 1_000 * self.seed + number, adapter)
        noise = random.Random(30_000 + 1_000 * self.seed + number)
        scores = [self.scores(task, answer.samples, noise) for task, answer in zip(tasks, answers, strict=True)]
        floor = _noise(answers, scores)
        useful = [pair for pair in zip(answers, scores, strict=True) if statistics.pstdev(pair[1]) > floor]
        return [
            _training_sample(number, sample, score, array("l", answer.prompt_ids or ()))
            for number, (answer, marks) in enumerate(useful)
            for sample, score in zip(answer.samples, marks, strict=True)
        ]

    def references(self, number: int, wrong: float) -> list[TrainingSample]:
        """The right answers to the tasks of a round; a share of them are another task's, as if mixed up."""
        tasks, rng = self.tasks(number), random.Random(f"wrong {self.seed} {number}")
        mixed_up = set(rng.sample(range(len(tasks)), round(wrong * len(tasks))))
        tokenizer = self._judge.tokenizer
        found = []
        for place, task in enumerate(tasks):
            others = [one.answer for one in tasks if one.answer != task.answer]
            ids = array("l", _answer_ids(tokenizer, rng.choice(others) if place in mixed_up else task.answer))
            prompt = array("l", prompt_ids(tokenizer, task.input))
            unknown = array("f", bytes(4 * len(ids)))
            found.append(TrainingSample(-1 - place, "", 1.0, prompt, ids, unknown, demonstration="reference"))
        return found

    def scores(self, task: SortTask, samples: Sequence[Sample], noise: random.Random) -> list[float]:
        """Score samples by the bigger model, with noise, from 0 to 1."""
        answers = tuple(Answer(sample.text, sample.finish_reason) for sample in samples)
        rows = rows_of(ScoringRequest(task_id="t", prompt=task.input, answers=answers), self._judge)
        whole = [row for row in rows if isinstance(row, TokenRow)]
        assert len(whole) == len(rows)
        given = (score + noise.gauss(0.0, self.judgement.noise) for score in likelihoods(self._judge, whole))
        return [round(min(1.0, max(0.0, one)), self.judgement.digits) for one in given]

    @torch.inference_mode()
    def held_out_score(self, adapter: Path | None) -> float:
        """The probability of the right answer, the mean over the held-out tasks: exact, nothing is sampled."""
        model = load_language_model(str(self.base))
        policy = make_policy(model, adapter, Hyperparameters(), seed=0, max_rank=64).eval()
        tasks = held_out_tasks(self.seed)
        prompts = [prompt_ids(model.tokenizer, task.input) for task in tasks]
        answers = [_answer_ids(model.tokenizer, task.answer) for task in tasks]
        ids = torch.tensor([prompt + answer for prompt, answer in zip(prompts, answers, strict=True)])
        keep = len(answers[0])
        predicted = torch.log_softmax(policy(input_ids=ids).logits[:, -keep - 1 : -1].float(), -1)
        right = predicted.gather(-1, ids[:, -keep:, None]).squeeze(-1).sum(-1)
        return float(right.exp().mean())


@lru_cache(maxsize=2)
def first_experience(models: Path, base: str, judgement: str, seed: int) -> list[TrainingSample]:
    """Return the base model's first round, the same for all that learn from a log."""
    return World(models, base, judgement, seed).experience(None, 0)


def _answer_ids(tokenizer: Any, answer: str) -> list[int]:
    return [*tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]


def _noise(answers: Sequence[Generation], scores: Sequence[Sequence[float]]) -> float:
    """Return the judge's noise as the trainer measures it, at least that of rounding."""
    found = ScoreNoise()
    for answer, marks in zip(answers, scores, strict=True):
        texts = [hash(sample.text) for sample in answer.samples]
        found.add(0, list(zip(texts, marks, strict=True)))
    return max(found.deviation(0), ROUNDING)


def _training_sample(group: int, sample: Sample, score: float, prompt: array[int]) -> TrainingSample:
    completion = array("l", sample.completion_ids or ())
    return TrainingSample(group, "v", score, prompt, completion, array("f", sample.logprobs or ()))
