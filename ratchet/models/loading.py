"""Loads a causal language model into this process, from a Hugging Face folder or hub name, and says which one it is.

Imports torch: for the services a model runs in. Adapters, generation and scoring are the callers' own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from ratchet.models.tokenization import load_tokenizer, model_folder
from ratchet.service.errors import EngineError

DType = Literal["auto", "float32", "bfloat16", "float16"]


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
    threads: int = 1,
) -> LanguageModel:
    """Load it. `device` auto: the GPU if there is one. `threads` are torch's on the CPU, for the whole process.

    `dtype` auto: as the weights were saved on a GPU, float32 on a CPU (there bfloat16 is slower and its
    log-probabilities are off). Raises EngineError with the reason if the model can't be found or loaded.
    """
    target = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    if target.type == "cpu":
        torch.set_num_threads(threads)
    disable_progress_bar()
    folder = model_folder(name_or_path, revision)
    chosen = "float32" if dtype == "auto" and target.type == "cpu" else dtype
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=chosen).to(target).eval()
        tokenizer = load_tokenizer(folder)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise EngineError(f"the model in {name_or_path} can't be loaded: {error}") from error
    model.requires_grad_(False)
    return LanguageModel(model, tokenizer, identify(folder, name_or_path), folder, target)


def identify(folder: Path, name: str) -> ModelIdentity:
    """Of a hub's snapshot its name and commit; of any other folder its last part and what is in it."""
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
