"""Measures how much each module's update differs between two adapters; needs numpy, which small images do without.

A LoRA's A and B alone say little, for many pairs give the same product; so norms are of the update dW = scaling·B·A.
Norms and inner products come from r × r matrices (‖BA‖² = Σ (BᵀB)∘(AAᵀ)): dW itself is never formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ratchet.adapters.check import LORA_WEIGHT
from ratchet.adapters.diff import ModuleChange
from ratchet.adapters.lora_config import read_lora_config
from ratchet.adapters.safetensors_file import BYTES, SafetensorsFile


@dataclass(frozen=True, slots=True)
class _Update:
    """`a`: [r, in]; `b`: [out, r], times the scaling."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]


def module_changes(before: Path | None, after: Path | None) -> tuple[ModuleChange, ...]:
    """None is the base model: no update anywhere. Raises AdapterError for a folder that can't be read."""
    updates = [_updates(folder) if folder else {} for folder in (before, after)]
    modules = dict.fromkeys([*updates[0], *updates[1]])
    return tuple(module_change(path, updates[0].get(path), updates[1].get(path)) for path in modules)


def module_change(module: str, before: _Update | None, after: _Update | None) -> ModuleChange:
    norms = [math.sqrt(max(0.0, _inner(update, update))) if update else 0.0 for update in (before, after)]
    inner = _inner(before, after) if before and after else 0.0
    change = math.sqrt(max(0.0, norms[0] ** 2 + norms[1] ** 2 - 2 * inner))
    cosine = inner / (norms[0] * norms[1]) if norms[0] and norms[1] else None
    return ModuleChange(module, norms[0], norms[1], change, cosine)


def _inner(one: _Update, two: _Update) -> float:
    """The sum over all entries of (B₁A₁)∘(B₂A₂)."""
    return float(((one.b.T @ two.b) * (one.a @ two.a.T)).sum())


def _updates(folder: Path) -> dict[str, _Update]:
    config = read_lora_config(folder)
    weights = SafetensorsFile(folder / "adapter_model.safetensors")
    found = (LORA_WEIGHT.fullmatch(name) for name in sorted(weights.tensors))
    sides = {(match["path"], match["side"]): _array(weights, match[0]) for match in found if match}
    paths = [path for path, side in sides if side == "A" and (path, "B") in sides]
    return {path: _Update(sides[path, "A"], sides[path, "B"] * config.scaling(path)) for path in paths}


def _array(weights: SafetensorsFile, name: str) -> NDArray[np.float64]:
    """The tensor in float64, whatever it is stored as."""
    tensor, content = weights.tensors[name], weights.read(name)
    if tensor.dtype == "BF16":
        upper_half = np.frombuffer(content, "<u2").astype("<u4") << 16
        return upper_half.view("<f4").astype(np.float64).reshape(tensor.shape)
    return np.frombuffer(content, f"<f{BYTES[tensor.dtype]}").astype(np.float64).reshape(tensor.shape)
