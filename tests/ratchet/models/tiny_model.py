"""A tiny language model with meaningless weights, and LoRA adapters for it: enough to see whether an engine obeys.

The weights come from numpy's RandomState, whose numbers never change, so that recordings of a server stay valid.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from demos.toy.byte_tokenizer import VOCABULARY, byte_tokenizer

MAX_POSITIONS = 128


def save_tiny_model(folder: Path) -> Path:
    tokenizer = byte_tokenizer(MAX_POSITIONS)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    _fill(model, seed=1, std=0.25, only="")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_adapter(model_folder: Path, folder: Path, *, seed: int, **changed: Any) -> Path:
    """A LoRA adapter with which the model says something else."""
    settings: dict[str, Any] = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"} | changed
    wrapped = get_peft_model(LlamaForCausalLM.from_pretrained(model_folder), LoraConfig(**settings))
    _fill(wrapped, seed=seed, std=0.3, only="lora_")
    wrapped.save_pretrained(folder)
    return folder


@torch.no_grad()
def _fill(model: Any, *, seed: int, std: float, only: str) -> None:
    random = numpy.random.RandomState(seed)
    for name, parameter in sorted(model.named_parameters()):
        if only in name and "norm" not in name:
            values = random.standard_normal(tuple(parameter.shape)) * std
            parameter.copy_(torch.from_numpy(values).to(parameter.dtype))


if __name__ == "__main__":
    save_tiny_model(Path(sys.argv[1]))
