"""The learner's world: the small model answers sort tasks, the bigger one scores, a verifier looks at held-out tasks.

The verifier's word is never trained on. Answers are sampled as the agent samples them, by the same code.
"""

from __future__ import annotations

import random
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from schemas.response import Sample
from schemas.work import Sampling
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.local_generation import LocalGenerator
from services.agent.engines.peft_adapters import PeftAdapters
from services.local_model import load_language_model
from services.scorer.strategies.likelihood import Row, likelihoods, rows_of
from services.scorer.strategies.strategy import Answer, ScoringRequest
from services.sort_task import SortTask, sort_task
from services.trainer.samples import TrainingSample

GROUP = 8
AT_ONCE = 16
MAX_TOKENS = 12
HELD_OUT_TASKS = 250
HELD_OUT_SAMPLES = 2
ADAPTER = "learner"


@dataclass(frozen=True, slots=True)
class Experience:
    """What a policy did on some tasks, as the trainer reads it from the log."""

    samples: list[TrainingSample]

    @property
    def groups(self) -> list[list[float]]:
        found: dict[int, list[float]] = {}
        for sample in self.samples:
            found.setdefault(sample.group, []).append(sample.score)
        return list(found.values())


class World:
    """One seed's tasks. `models`: the folder with `small` and `judge`."""

    def __init__(self, models: Path, seed: int) -> None:
        self.small = models / "small"
        self._judge = load_language_model(str(models / "judge"))
        self._rng = random.Random(seed)
        held_out = random.Random(10_000 + seed)
        self._held_out = [sort_task(held_out, held_out=True) for _ in range(HELD_OUT_TASKS)]

    def tasks(self, count: int) -> list[SortTask]:
        return [sort_task(self._rng, held_out=False) for _ in range(count)]

    def experience(self, adapter: Path | None, tasks: Sequence[SortTask], seed: int) -> Experience:
        """Groups whose scores differ; the others teach nothing and the trainer would leave them out."""
        samples: list[TrainingSample] = []
        for task, answer in zip(tasks, self._answers(adapter, tasks, GROUP, seed), strict=True):
            scores = self.scores(task, answer.samples)
            if max(scores) - min(scores) > 1e-9:
                number = samples[-1].group + 1 if samples else 0
                prompt = array("l", answer.prompt_ids or ())
                samples += [
                    _logged(number, one, score, prompt) for one, score in zip(answer.samples, scores, strict=True)
                ]
        return Experience(samples)

    def scores(self, task: SortTask, samples: Sequence[Sample]) -> list[float]:
        """By the bigger model."""
        answers = tuple(Answer(sample.text, sample.finish_reason) for sample in samples)
        rows = rows_of(ScoringRequest(task_id="t", prompt=task.input, answers=answers), self._judge)
        whole = [row for row in rows if isinstance(row, Row)]
        assert len(whole) == len(rows)
        return [min(score, 1.0) for score in likelihoods(self._judge, whole)]

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
        generator = LocalGenerator(model, adapters, threading.Event())
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


def _logged(group: int, sample: Sample, score: float, prompt: array[int]) -> TrainingSample:
    completion = array("l", sample.completion_ids or ())
    return TrainingSample(group, "v", score, prompt, completion, array("f", sample.logprobs or ()))
