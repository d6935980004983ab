"""What is trained on in the benchmark: a model, and groups of scored completions that some policy sampled."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ratchet.models.toy.byte_tokenizer import VOCABULARY, byte_tokenizer
from services.trainer.data.samples import TrainingSample

GROUP = 8


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths in tokens; `flat_share`: of groups whose scores are all the same, as an improving policy's often are.

    `trl_rows`: samples through the model at once in TRL, of 8 and the whole batch what was faster for it.
    """

    name: str
    hidden: int
    layers: int
    vocabulary: int
    groups: int
    prompt: tuple[int, int]
    completion: tuple[int, int]
    flat_share: float
    batch: int
    trl_rows: int

    def model(self) -> Any:
        torch.manual_seed(0)
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=self.vocabulary,
                hidden_size=self.hidden,
                intermediate_size=2 * self.hidden,
                num_hidden_layers=self.layers,
                num_attention_heads=self.hidden // 32,
                max_position_embeddings=2048,
                tie_word_embeddings=True,
                bos_token_id=None,
                eos_token_id=1,
                pad_token_id=0,
            )
        )

    def tokenizer(self) -> Any:
        return byte_tokenizer(2048)

    def samples(self) -> list[TrainingSample]:
        """Random tokens: what is measured does not depend on their meaning. Log-probabilities of about the model's."""
        rng = random.Random(1)
        samples = []
        for number in range(self.groups):
            prompt = array("l", (rng.randrange(2, VOCABULARY) for _ in range(rng.randint(*self.prompt))))
            flat = rng.random() < self.flat_share
            for index in range(GROUP):
                length = rng.randint(*self.completion)
                completion = array("l", (rng.randrange(2, VOCABULARY) for _ in range(length)))
                logprobs = array("f", [-5.5] * length)
                samples.append(TrainingSample(number, "v", 0.5 if flat else index % 2, prompt, completion, logprobs))
        return samples


WORKLOADS = (
    Workload("demo: 0.2 M parameters, 12 + 6 tokens", 96, 2, VOCABULARY, 64, (10, 14), (4, 8), 0.1, 128, 128),
    Workload("short answers: 1 M, 128 + 32 tokens", 128, 4, 4_096, 16, (96, 160), (16, 48), 0.25, 32, 8),
    Workload("long answers: 1 M, 64 + 160 tokens", 128, 4, 4_096, 16, (48, 80), (64, 256), 0.25, 32, 8),
)
