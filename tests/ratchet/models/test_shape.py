"""Sizes by a config.json alone: those of the model itself, to the last parameter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from ratchet.models.shape import KNOWN_SHAPES, known_shape, shape_of
from ratchet.service.errors import EngineError

SMALL: dict[str, Any] = {
    **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64},
}


@pytest.mark.parametrize(
    ("family", "further"),
    [
        ("llama", {"tie_word_embeddings": True}),
        ("llama", {"tie_word_embeddings": False, "head_dim": 20}),
        ("mistral", {"tie_word_embeddings": False}),
        ("qwen2", {"tie_word_embeddings": True}),
        ("qwen3", {"tie_word_embeddings": False, "head_dim": 16}),
    ],
)
def test_model_and_adapter_are_counted_exactly(family: str, further: dict[str, Any]) -> None:
    config = AutoConfig.for_model(family, **SMALL, **further)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)

    shape = shape_of(json.loads(config.to_json_string(use_diff=False)))
    policy = get_peft_model(model, LoraConfig(r=5, target_modules="all-linear", task_type="CAUSAL_LM"))

    trained = sum(weights.numel() for weights in policy.parameters() if weights.requires_grad)
    assert shape.lora_parameters(5) == trained
    assert shape.parameters == sum(weights.numel() for weights in policy.parameters()) - trained
    assert shape.lora_parameters(5, frozenset({"q_proj"})) == 3 * 5 * (48 + shape.queries)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("smollm2", 134_515_008),
        ("qwen2.5-0.5b", 494_032_768),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304),
        ("Qwen/Qwen2.5-Coder-3B", 3_085_938_688),
        ("qwen2.5-7b", 7_615_616_512),
    ],
)
def test_the_known_ones_have_the_sizes_they_are_published_with(name: str, parameters: int) -> None:
    assert known_shape(name).parameters == parameters


def test_a_folder_is_read_and_what_is_not_known_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL | {"model_type": "llama"}))

    assert known_shape(str(tmp_path)) == known_shape(str(tmp_path / "config.json"))
    with pytest.raises(EngineError, match=f"the size of 'org/other' is not known.*{'.*'.join(KNOWN_SHAPES)}"):
        known_shape("org/other")
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(EngineError, match="models of type 'mamba' are not counted"):
        known_shape(str(tmp_path))
