"""Counts parameters and linear layers from a model's config.json, without its weights, and exactly.

It knows the decoders whose blocks are Llama's: Llama, Mistral, Qwen 2 and 3, SmolLM. No torch, no hub.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.service.errors import EngineError

FAMILIES = {"llama", "mistral", "qwen2", "qwen3"}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Widths in numbers; `tied`: the head is the embeddings; `biased`: q, k and v have biases; `normed`: norms on q and
    k."""

    hidden: int
    inner: int
    layers: int
    heads: int
    key_value_heads: int
    head: int
    vocabulary: int
    tied: bool
    biased: bool = False
    normed: bool = False

    @property
    def queries(self) -> int:
        return self.heads * self.head

    @property
    def keys(self) -> int:
        return self.key_value_heads * self.head

    @property
    def linear(self) -> dict[str, tuple[int, int]]:
        """The linear layers of a block: inputs and outputs of each."""
        return {
            "q_proj": (self.hidden, self.queries),
            "k_proj": (self.hidden, self.keys),
            "v_proj": (self.hidden, self.keys),
            "o_proj": (self.queries, self.hidden),
            "gate_proj": (self.hidden, self.inner),
            "up_proj": (self.hidden, self.inner),
            "down_proj": (self.inner, self.hidden),
        }

    @property
    def linear_parameters(self) -> int:
        """Count the parameters in the linear layers of all blocks: those kept in 4 bits where anything is."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.linear.values())

    @property
    def embedding_parameters(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        biases = (self.queries + 2 * self.keys) if self.biased else 0
        norms = 2 * self.hidden + (2 * self.head if self.normed else 0)
        embeddings = self.embedding_parameters * (1 if self.tied else 2)
        return self.linear_parameters + self.layers * (biases + norms) + self.hidden + embeddings

    def lora_parameters(self, rank: int, targets: frozenset[str] | None = None) -> int:
        """Count the parameters of a LoRA on all linear layers but the head, or on those named."""
        adapted = [size for name, size in self.linear.items() if targets is None or name in targets]
        return self.layers * rank * sum(inputs + outputs for inputs, outputs in adapted)


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """Read the shape from a config.json. Raises EngineError for a model that is not counted here."""
    family = config.get("model_type")
    if family not in FAMILIES:
        raise EngineError(f"models of type {family!r} are not counted; {', '.join(sorted(FAMILIES))} are")
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return ModelShape(
            hidden=hidden,
            inner=int(config["intermediate_size"]),
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            key_value_heads=int(config.get("num_key_value_heads") or heads),
            head=int(config.get("head_dim") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            biased=family == "qwen2",
            normed=family == "qwen3",
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"the model's config.json can't be read: {error!r}") from error


def _qwen(hidden: int, inner: int, layers: int, heads: int, keys: int, vocabulary: int = 151_936) -> ModelShape:
    head = hidden // heads
    return ModelShape(hidden, inner, layers, heads, keys, head, vocabulary, tied=vocabulary == 151_936, biased=True)


KNOWN_SHAPES = {
    "smollm2": ModelShape(576, 1536, 30, 9, 3, 64, 49_152, tied=True),
    "qwen2.5-0.5b": _qwen(896, 4864, 24, 14, 2),
    "qwen2.5-1.5b": _qwen(1536, 8960, 28, 12, 2),
    "qwen2.5-3b": _qwen(2048, 11_008, 36, 16, 2),
    "qwen2.5-7b": _qwen(3584, 18_944, 28, 28, 4, vocabulary=152_064),
}
"""Shapes from their config.json on the hub; those of the Coder and Instruct models are the same."""


def known_shape(name: str) -> ModelShape:
    """Return the shape of a known model, a folder with a config.json, or such a file.

    Raises EngineError with the models that are known.
    """
    short = name.rpartition("/")[2].lower().removesuffix("-instruct").replace("-coder", "")
    if short in KNOWN_SHAPES:
        return KNOWN_SHAPES[short]
    path = Path(name)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise EngineError(
            f"the size of {name!r} is not known: name a folder with a config.json, such a file, or one of "
            f"{', '.join(KNOWN_SHAPES)}"
        )
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise EngineError(f"{file} can't be read: {error}") from error
    return shape_of(config if isinstance(config, dict) else {})
