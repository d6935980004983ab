"""A tiny language model with random weights, and LoRA adapters for it: enough to tell whether an engine does as asked."""

from __future__ import annotations

from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from services.agent.byte_tokenizer import VOCABULARY, byte_tokenizer

MAX_POSITIONS = 64


def save_tiny_model(folder: Path) -> Path:
    """Weights large enough that its answers differ from prompt to prompt and from adapter to adapter."""
    torch.manual_seed(11)
    tokenizer = byte_tokenizer(MAX_POSITIONS)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_adapter(model_folder: Path, folder: Path, *, seed: int, **config: object) -> Path:
    """A LoRA adapter whose random weights change what the model says."""
    torch.manual_seed(seed)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"} | config
    wrapped = get_peft_model(LlamaForCausalLM.from_pretrained(model_folder), LoraConfig(**settings))
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    wrapped.save_pretrained(folder)
    return folder
