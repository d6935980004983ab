"""Compares two adapters: their cards, and the update each adds to every module of the base model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratchet.adapters.check import LORA_WEIGHT
from ratchet.adapters.lora_config import read_lora_config
from ratchet.adapters.manifest import read_card
from ratchet.adapters.safetensors_file import BYTES, SafetensorsFile
from ratchet.service.entry_points import to_install
from schemas.records.adapter_card import AdapterCard

WITHOUT_NORMS = f"how much each module's update changed is not shown: that needs numpy ({to_install('diff')})"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """`before` or `after` is None where there is no such field. `section`: card, data, hyperparameters or metrics."""

    section: str
    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class ModuleChange:
    """Frobenius norms of the update before, after, and of the difference; cosine, None if one of them is zero."""

    module: str
    norm_before: float
    norm_after: float
    norm_change: float
    cosine: float | None


@dataclass(frozen=True, slots=True)
class AdapterDiff:
    """`note` says why no module is shown, where that is so."""

    fields: tuple[FieldChange, ...]
    modules: tuple[ModuleChange, ...]
    note: str | None = None


def diff_adapters(before: Path | None, after: Path | None) -> AdapterDiff:
    """None is the base model: no card, and no update anywhere. Raises AdapterError for a folder that can't be read."""
    cards = [_flat(read_card(folder)) if folder else {} for folder in (before, after)]
    fields = tuple(_field_changes(*cards))
    if find_spec("numpy") is None:
        return AdapterDiff(fields, (), WITHOUT_NORMS)
    from ratchet.adapters.diff import module_changes

    return AdapterDiff(fields, module_changes(before, after))


def _flat(card: AdapterCard) -> dict[tuple[str, str], Any]:
    content = card.model_dump(mode="json")
    sections = ("data", "hyperparameters", "metrics")
    flat = {("card", field): value for field, value in content.items() if field not in sections}
    return flat | {(section, field): value for section in sections for field, value in content[section].items()}


def _field_changes(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> list[FieldChange]:
    keys = dict.fromkeys([*before, *after])
    return [FieldChange(*key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]


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
