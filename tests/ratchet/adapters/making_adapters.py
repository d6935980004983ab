"""Small LoRA adapters for tests, as PEFT writes them, made with numpy: good ones, and ones spoiled in a named way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from ratchet.adapters.publish import publish_adapter
from schemas.messages.base import BaseModelIdentity
from schemas.records.adapter_card import AdapterCard

BASE = BaseModelIdentity(name="small", revision="5" * 64)
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def card(**fields: Any) -> AdapterCard:
    given: dict[str, Any] = {"base": BASE, "algorithm": "grpo", "created": NOON} | fields
    return AdapterCard(**given)


def config(**fields: Any) -> bytes:
    plain = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "use_dora": False}
    return json.dumps(plain | fields).encode()


def tensors(seed: int = 0, rank: int = 4, width: int = 8) -> dict[str, Any]:
    numbers = np.random.default_rng(seed)
    paths = [f"base_model.model.model.layers.0.self_attn.{module}" for module in ("q_proj", "v_proj")]
    sides = {"A": (rank, width), "B": (width, rank)}
    return {
        f"{path}.lora_{side}.weight": numbers.normal(size=shape).astype("f4")
        for path in paths
        for side, shape in sides.items()
    }


def files(weights: dict[str, Any] | None = None, **config_fields: Any) -> dict[str, Path | bytes]:
    content = save(tensors() if weights is None else weights)
    return {"adapter_config.json": config(**config_fields), "adapter_model.safetensors": content}


def published(
    adapters_dir: Path,
    agent_id: str = "small",
    *,
    seed: int = 0,
    beside: Mapping[str, bytes] | None = None,
    **card_fields: Any,
) -> Path:
    """`beside`: further files of its folder."""
    return publish_adapter(files(tensors(seed)) | dict(beside or {}), card(**card_fields), adapters_dir, agent_id)
