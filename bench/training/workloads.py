"""The workloads of the benchmark: a model, and groups of scored completions that some policy sampled."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from demos.toy.byte_tokenizer import VOCABULARY, byte_tokenizer
from ratchet.models.loading import load_language_model
from services.trainer.data.samples import TrainingSample

GROUP = 8


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths in tokens; `flat_share`: of groups whose scores are all the same, as an improving policy's often are.

    `trl_rows`: samples through the model at once in TRL, of 8 and the whole batch what was faster for it. `known`: a
    fetched model, in the place of a made one. `common`: tokens all prompts begin with, as example turns. `distinct`:
    no two prompts are alike, also within a group, as in conversations.
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
    known: str | None = None
    common: int = 0
    distinct: bool = False

    def model(self) -> Any:
        torch.manual_seed(0)
        if self.known:
            return load_language_model(self.known, device="cpu").model
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
        common = [rng.randrange(2, VOCABULARY) for _ in range(self.common)]

        def tokens(length: tuple[int, int], before: list[int]) -> array[int]:
            return array("l", [*before, *(rng.randrange(2, VOCABULARY) for _ in range(rng.randint(*length)))])

        for number in range(self.groups):
            prompt = tokens(self.prompt, common)
            flat = number < round(self.flat_share * self.groups)
            for index in range(GROUP):
                if self.distinct:
                    prompt = tokens(self.prompt, [])
                completion = tokens(self.completion, [])
                length = len(completion)
                logprobs = array("f", [-5.5] * length)
                samples.append(TrainingSample(number, "v", 0.5 if flat else index % 2, prompt, completion, logprobs))
        return samples


WORKLOADS = (
    Workload("demo: 0.2 M parameters, 12 + 6 tokens", 96, 2, VOCABULARY, 64, (10, 14), (4, 8), 0.1, 128, 128),
    Workload("short answers: 1 M, 128 + 32 tokens", 128, 4, 4_096, 16, (96, 160), (16, 48), 0.25, 32, 8),
    Workload("long answers: 1 M, 64 + 160 tokens", 128, 4, 4_096, 16, (48, 80), (64, 256), 0.25, 32, 8),
)

SMOLLM2 = {"hidden": 576, "layers": 30, "vocabulary": 49_152, "flat_share": 0.25, "trl_rows": 8, "known": "smollm2"}

REAL = (
    Workload(
        "SmolLM2: 120 tokens in common + 45 + 30",
        groups=4, prompt=(35, 55), completion=(20, 40), batch=32, common=120, **SMOLLM2,
    ),
    Workload(
        "SmolLM2: all prompts distinct, 165 + 30",
        groups=4, prompt=(155, 175), completion=(20, 40), batch=32, distinct=True, **SMOLLM2,
    ),
)  # fmt: skip
"""Orders as JSON after two example turns; ratchet models fetch smollm2."""
