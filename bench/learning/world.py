"""The learner's world: the small model answers sort tasks, the bigger one scores, a verifier looks at held-out tasks.

There are two. With the sharp judge the best of eight answers is nearly always right, so that copying it is hard to
beat. The rough judge is what most traffic has: fewer answers to a task, marks in tenths, and another mark when asked
again. The verifier's word is never trained on. Answers are sampled as the agent samples them, by the same code; groups
that spread no wider than the judge's noise are left out, as the trainer does.
"""

from __future__ import annotations

import random
import statistics
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from services.agent.engines.local_generation import LocalGenerator

from ratchet.models.loading import load_language_model
from ratchet.models.toy.sort_task import SortTask, sort_task
from schemas.messages.response import Sample
from schemas.messages.work import Sampling
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.peft_adapters import PeftAdapters
from services.scorer.strategies.likelihood import TokenRow, likelihoods, rows_of
from services.scorer.strategies.strategy import Answer, ScoringRequest
from services.trainer.data.samples import TrainingSample
from services.trainer.data.score_noise import ScoreNoise

AT_ONCE = 16
MAX_TOKENS = 12
HELD_OUT_TASKS = 250
HELD_OUT_SAMPLES = 2
ADAPTER = "learner"
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Judgement:
    """`tasks` a round, answered `group` times each; the bigger model's scores with normal `noise` (a standard
    deviation) on top, cut to [0, 1], rounded to `digits`."""

    name: str
    tasks: int
    group: int
    noise: float = 0.0
    digits: int = 9

    @property
    def samples(self) -> int:
        return self.tasks * self.group


SHARP = Judgement("sharp judge, groups of 8", tasks=64, group=8)
ROUGH = Judgement("rough judge, groups of 4", tasks=128, group=4, noise=0.2, digits=1)


@dataclass(frozen=True, slots=True)
class Experience:
    """What a policy did on some tasks, as the trainer reads it from the log."""

    samples: list[TrainingSample]


class World:
    """One seed's tasks. `models`: the folder with `small` and `judge`."""

    def __init__(self, models: Path, seed: int, judgement: Judgement) -> None:
        self.judgement = judgement
        self.small = models / "small"
        self._judge = load_language_model(str(models / "judge"))
        self._rng = random.Random(seed)
        self._noise = random.Random(30_000 + seed)
        held_out = random.Random(10_000 + seed)
        self._held_out = [sort_task(held_out, held_out=True) for _ in range(HELD_OUT_TASKS)]

    def tasks(self) -> list[SortTask]:
        """Of one round."""
        return [sort_task(self._rng, held_out=False) for _ in range(self.judgement.tasks)]

    def experience(self, adapter: Path | None, tasks: Sequence[SortTask], seed: int) -> Experience:
        answers = self._answers(adapter, tasks, self.judgement.group, seed)
        scores = [self.scores(task, answer.samples) for task, answer in zip(tasks, answers, strict=True)]
        noise = _noise(answers, scores)
        useful = [pair for pair in zip(answers, scores, strict=True) if statistics.pstdev(pair[1]) > noise]
        return Experience(
            [
                _logged(number, sample, score, array("l", answer.prompt_ids or ()))
                for number, (answer, marks) in enumerate(useful)
                for sample, score in zip(answer.samples, marks, strict=True)
            ]
        )

    def scores(self, task: SortTask, samples: Sequence[Sample]) -> list[float]:
        """By the bigger model."""
        answers = tuple(Answer(sample.text, sample.finish_reason) for sample in samples)
        rows = rows_of(ScoringRequest(task_id="t", prompt=task.input, answers=answers), self._judge)
        whole = [row for row in rows if isinstance(row, TokenRow)]
        assert len(whole) == len(rows)
        return [self._mark(score) for score in likelihoods(self._judge, whole)]

    def _mark(self, score: float) -> float:
        given = score + self._noise.gauss(0.0, self.judgement.noise)
        return round(min(1.0, max(0.0, given)), self.judgement.digits)

    def held_out_score(self, adapter: Path | None, seed: int) -> float:
        """Share of right answers, sampled as in service, on tasks no model was trained on."""
        answers = self._answers(adapter, self._held_out, HELD_OUT_SAMPLES, 20_000 + seed)
        right = [
            sample.text == task.answer
            for task, answer in zip(self._held_out, answers, strict=True)
            for sample in answer.samples
        ]
        return sum(right) / len(right)

    def _answers(self, adapter: Path | None, tasks: Sequence[SortTask], each: int, seed: int) -> list[Generation]:
        model = load_language_model(str(self.small))
        adapters = PeftAdapters(model.model)
        if adapter is not None:
            adapters.load(ADAPTER, adapter)
        generator = LocalGenerator(model, adapters)
        torch.manual_seed(seed)
        sampling = Sampling(n=each, max_tokens=MAX_TOKENS)
        name = ADAPTER if adapter else None
        requests = [GenerationRequest(prompt=task.input, sampling=sampling, adapter=name) for task in tasks]
        answers = [
            answer
            for start in range(0, len(requests), AT_ONCE)
            for answer in generator.answer(requests[start : start + AT_ONCE])
        ]
        return [answer for answer in answers if isinstance(answer, Generation)]


def _noise(answers: Sequence[Generation], scores: Sequence[Sequence[float]]) -> float:
    """The judge's, as the trainer measures it; rounding errors are below it."""
    found = ScoreNoise()
    for answer, marks in zip(answers, scores, strict=True):
        texts = [hash(sample.text) for sample in answer.samples]
        found.add(0, list(zip(texts, marks, strict=True)))
    return max(found.deviation(0), ROUNDING)


def _logged(group: int, sample: Sample, score: float, prompt: array[int]) -> TrainingSample:
    completion = array("l", sample.completion_ids or ())
    return TrainingSample(group, "v", score, prompt, completion, array("f", sample.logprobs or ()))
