"""The hidden verifier: what a version's answers to the held-out tasks are truly worth. The fleet never hears of it.

n = 1 is exact: the probability that one sampled answer is right. Served is the answer that the judge, as it was at
first, chooses among so many; its expectation over all draws of so many from a group of eight.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import torch

from bench.ratchet.judge import Judge
from bench.ratchet.model import IGNORED, answer_ids, pad_rows
from bench.ratchet.quality import GROUP, Quality
from bench.ratchet.tasks import held_out_problems
from bench.sampling import sample_answers
from ratchet.experiments.served import best_of
from ratchet.files.atomic_file import replace_file
from ratchet.models.loading import load_language_model
from ratchet.models.tokenization import prompt_ids
from schemas.messages.work import Sampling
from services.trainer.algorithms.hyperparameters import Hyperparameters
from services.trainer.algorithms.policy import make_policy

EACH = 200
"""Held-out tasks of a family."""
MAX_TOKENS = 24


class Verifier:
    """Keeps what it found of each version in `folder`."""

    def __init__(self, base: Path, folder: Path, seed: int) -> None:
        self._base = base
        self._folder = folder
        self._seed = seed
        self._problems = held_out_problems(seed, EACH)

    def quality(self, version: str, adapter: Path | None) -> Quality:
        if (known := self.read_quality(version)) is not None:
            return known
        found = Quality(version, self._singles(adapter), self._served_curves(adapter))
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._folder / f"{version}.json", json.dumps(asdict(found)).encode())
        return found

    def read_quality(self, version: str) -> Quality | None:
        path = self._folder / f"{version}.json"
        return Quality(**json.loads(path.read_text())) if path.exists() else None

    @torch.inference_mode()
    def _singles(self, adapter: Path | None) -> list[float]:
        model = load_language_model(str(self._base))
        policy = make_policy(model, adapter, Hyperparameters(), seed=0, max_rank=64).eval()
        rows = [
            (prompt_ids(model.tokenizer, one.input), answer_ids(model.tokenizer, one.answer)) for one in self._problems
        ]
        ids, targets = pad_rows(rows, model.tokenizer.pad_token_id)
        predicted, wanted = torch.log_softmax(policy(input_ids=ids).logits[:, :-1].float(), -1), targets[:, 1:]
        of_answer = wanted != IGNORED
        right = predicted.gather(-1, wanted.clamp(min=0)[..., None]).squeeze(-1) * of_answer
        return [float(one) for one in right.sum(-1).exp()]

    def _served_curves(self, adapter: Path | None) -> list[list[float]]:
        judge, curves = Judge(self._seed), []
        sampling, prompts = Sampling(n=GROUP, max_tokens=MAX_TOKENS), [one.input for one in self._problems]
        answers, _ = sample_answers(str(self._base), prompts, sampling, self._seed, adapter)
        for problem, answer in zip(self._problems, answers, strict=True):
            texts = [sample.text for sample in answer.samples]
            scores, right = judge.scores(texts, problem.answer), [float(text == problem.answer) for text in texts]
            curves.append([best_of(scores, count, right) for count in range(1, GROUP + 1)])
        return curves
