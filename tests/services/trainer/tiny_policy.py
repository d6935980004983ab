"""A tiny policy and what it sampled: real tokens, real log-probabilities, scores that prefer low token ids."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaForCausalLM

from ratchet.adapters.folder import adapter_sha256
from ratchet.models.loading import content_sha256
from schemas.messages.work import Sampling
from services.trainer.data.samples import TrainingSample
from tests.services.trainer.making_logs import line

END = 257
LONGEST = 6


def tiny_lora(model_folder: Path, *, seed: int = 3) -> Any:
    """A policy whose adapter already says something: both halves of each LoRA are random."""
    model = LlamaForCausalLM.from_pretrained(model_folder)
    torch.manual_seed(seed)
    policy = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.1)
    return policy


def loaded(model_folder: Path, adapter: Path | None) -> Any:
    model = LlamaForCausalLM.from_pretrained(model_folder).eval()
    return model if adapter is None else PeftModel.from_pretrained(model, str(adapter)).eval()


@torch.no_grad()
def sampled(
    model: Any, prompts: Sequence[Sequence[int]], each: int, seed: int
) -> list[list[tuple[list[int], list[float]]]]:
    """Sample a group of (completion, log-probabilities) for each prompt, token by token at temperature 1."""
    torch.manual_seed(seed)
    return [[_one(model, list(prompt)) for _ in range(each)] for prompt in prompts]


def _one(model: Any, prompt: list[int]) -> tuple[list[int], list[float]]:
    completion: list[int] = []
    logprobs: list[float] = []
    while len(completion) < LONGEST and END not in completion:
        logits = model(input_ids=torch.tensor([prompt + completion])).logits[0, -1]
        distribution = torch.log_softmax(logits, -1)
        token = int(torch.multinomial(distribution.exp(), 1))
        completion.append(token)
        logprobs.append(float(distribution[token]))
    return completion, logprobs


def score_of(completion: Sequence[int]) -> float:
    return sum(token < 100 for token in completion) / len(completion)


def logged_groups(
    model_folder: Path, adapter: Path | None, *, count: int, each: int, seed: int, **changed: Any
) -> list[bytes]:
    """Lines of a log that this policy wrote."""
    rng = random.Random(seed)
    prompts = [[rng.randrange(256) for _ in range(rng.randrange(2, 6))] for _ in range(count)]
    groups = sampled(loaded(model_folder, adapter), prompts, each, seed)
    common: dict[str, Any] = {
        "engine": f"transformers model@{content_sha256(model_folder)[:12]}",
        "adapter_version": adapter.name if adapter else "v1.0.0",
        "adapter_sha256": adapter_sha256(adapter) if adapter else None,
        "group_size": each,
        "sampling": Sampling(n=each),
    } | changed
    return [
        line(
            f"{adapter.name if adapter else 'base'}-{seed}-{number}",
            index,
            response=str(completion),
            score=score_of(completion),
            prompt_ids=tuple(prompt),
            completion_ids=tuple(completion),
            logprobs=tuple(logprobs),
            **common,
        )
        for number, (prompt, group) in enumerate(zip(prompts, groups, strict=True))
        for index, (completion, logprobs) in enumerate(group)
    ]


def training_samples(model: Any, sizes: Sequence[int], seed: int, *, off: float = 0.0) -> list[TrainingSample]:
    """Ragged groups sampled by the model; `off`: how far the logged log-probabilities are from its own."""
    rng = random.Random(seed)
    samples = []
    for number, size in enumerate(sizes):
        prompt = array("l", (rng.randrange(256) for _ in range(rng.randrange(2, 6))))
        for completion, logprobs in sampled(model, [list(prompt)], size, seed + number)[0]:
            samples.append(
                TrainingSample(
                    group=number,
                    version="v1.0.1",
                    score=score_of(completion),
                    prompt=prompt,
                    completion=array("l", completion),
                    logprobs=array("f", (value + rng.uniform(-off, off) for value in logprobs)),
                )
            )
    return samples
