"""Loads a causal language model into this process, from a Hugging Face folder or hub name, and says which one it is.

Imports torch: for the services a model runs in. Adapters, generation and scoring are the callers' own.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.utils.logging import disable_progress_bar

from ratchet.adapters.lora_config import LoraConfig, written_out
from ratchet.models.known import model_folder
from ratchet.models.tokenization import load_tokenizer
from ratchet.service.errors import EngineError

if TYPE_CHECKING:
    import peft

T = TypeVar("T")


def peft_config(checked: LoraConfig, *, trainable: bool) -> peft.LoraConfig:
    """Return peft's form of a configuration that ratchet/adapters/check.py found no fault with.

    The weights are to be loaded over it.
    """
    import peft  # the scorer's image has none: its models have no adapters

    return peft.LoraConfig(
        task_type="CAUSAL_LM",
        inference_mode=not trainable,
        r=checked.r,
        lora_alpha=checked.lora_alpha,
        use_rslora=checked.use_rslora,
        lora_dropout=checked.lora_dropout,
        target_modules=checked.target_modules,
        exclude_modules=checked.exclude_modules or None,
        layers_to_transform=checked.layers_to_transform,
        fan_in_fan_out=checked.fan_in_fan_out,
        rank_pattern=_escape_pattern(checked.rank_pattern),
        alpha_pattern=_escape_pattern(checked.alpha_pattern),
    )


def _escape_pattern(pattern: dict[str, T] | None) -> dict[str, T]:
    return {re.escape(written_out(key)): value for key, value in (pattern or {}).items()}


DType = Literal["auto", "float32", "bfloat16", "float16"]
Attention = Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]
Weights = Literal["full", "4bit"]

SMALL_MODEL = 50_000_000


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """`revision` is the hub's commit, or of a plain folder the sha256 of its configuration and weights."""

    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.name}@{self.revision[:12]}"


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A transformers causal language model in evaluation mode, and its tokenizer (which pads on the left)."""

    model: Any
    tokenizer: Any
    identity: ModelIdentity
    folder: Path
    device: torch.device

    @property
    def max_positions(self) -> int:
        """Longest sequence in tokens, prompt and completion together."""
        return int(self.model.config.max_position_embeddings)

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        ends = self.model.generation_config.eos_token_id
        listed = ends if isinstance(ends, list) else [ends]
        return frozenset(token for token in (*listed, self.tokenizer.eos_token_id) if token is not None)


def load_language_model(
    name_or_path: str,
    revision: str | None = None,
    *,
    dtype: DType = "auto",
    device: str = "auto",
    threads: int | None = 1,
    attention: Attention = "auto",
    weights: Weights = "full",
    spread_over: int = 1,
) -> LanguageModel:
    """Load it. `device` auto: the GPU if there is one. `threads` are torch's on the CPU, for the whole process; None:
    by the model's size.

    `dtype` auto: as the weights were saved on a GPU, but float16 on one without bfloat16; float32 on a CPU, as
    bfloat16 is slower on most and its log-probabilities are off. `attention` auto: Transformers' choice. `weights`
    4bit: NF4 (QLoRA), by bitsandbytes. `spread_over`: so many processes, each of which reads and keeps only its part
    of each layer (FSDP2). Raises EngineError with the reason if the model can't be found or loaded.
    """
    target = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    if target.type == "cpu":
        torch.set_num_threads(threads or 1)
    disable_progress_bar()
    folder = model_folder(name_or_path, revision)
    options: dict[str, Any] = {"dtype": _chosen_dtype(folder, dtype, target)}
    if attention != "auto":
        options["attn_implementation"] = attention
    if weights == "4bit":
        options["quantization_config"] = _four_bits(half_precision(target))
        options["device_map"] = {"": target}
    if spread_over > 1:
        options["distributed_config"] = DistributedConfig(fsdp_size=spread_over)
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, **options).eval()
        if options.keys().isdisjoint({"device_map", "distributed_config"}):
            model = model.to(target)
        tokenizer = load_tokenizer(folder)
    except (ImportError, OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise EngineError(f"the model in {name_or_path} can't be loaded: {error}") from error
    if threads is None and target.type == "cpu":
        torch.set_num_threads(_threads_for(model.num_parameters(), spread_over))
    model.requires_grad_(False)
    return LanguageModel(model, tokenizer, identify(folder, name_or_path), folder, target)


def half_precision(device: torch.device) -> torch.dtype:
    """The 16-bit format to compute in: bfloat16, but float16 on a GPU that has none (before NVIDIA's Ampere)."""
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.float16
    return torch.bfloat16


def _threads_for(parameters: int, processes: int) -> int:
    """One for a small model, whose operations are too short to share out; else this process's part of the cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if parameters < SMALL_MODEL else max(1, cores // processes)


def _chosen_dtype(folder: Path, dtype: DType, device: torch.device) -> torch.dtype | str:
    if dtype != "auto":
        return dtype
    if device.type == "cpu":
        return torch.float32
    saved = AutoConfig.from_pretrained(folder).dtype
    return half_precision(device) if saved == torch.bfloat16 else "auto"


def _four_bits(compute: torch.dtype) -> BitsAndBytesConfig:
    """Return the configuration of QLoRA (Dettmers et al.

    2023, arXiv:2305.14314): NF4, with the scales quantised too.
    """
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=compute
    )


def identify(folder: Path, name: str) -> ModelIdentity:
    """Identify a hub's snapshot by name and commit, and any other folder by its last part and its content."""
    if folder.parent.name == "snapshots":
        return ModelIdentity(name, folder.name)
    return ModelIdentity(folder.resolve().name, content_sha256(folder))


def content_sha256(folder: Path) -> str:
    """One sum over names and bytes of config.json and the weight files; reads the weights once (about 1 s a GB)."""
    total = hashlib.sha256()
    for path in sorted([folder / "config.json", *folder.glob("*.safetensors")]):
        with path.open("rb") as file:
            total.update(path.name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()
