"""Compares two adapters: their cards, and the update each adds to every module of the base model."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ratchet.adapters.manifest import read_card
from ratchet.service.extras import to_install
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
    from ratchet.adapters.update_norms import module_changes

    return AdapterDiff(fields, module_changes(before, after))


def _flat(card: AdapterCard) -> dict[tuple[str, str], Any]:
    content = card.model_dump(mode="json")
    sections = ("data", "hyperparameters", "metrics")
    flat = {("card", field): value for field, value in content.items() if field not in sections}
    return flat | {(section, field): value for section in sections for field, value in content[section].items()}


def _field_changes(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> list[FieldChange]:
    keys = dict.fromkeys([*before, *after])
    return [FieldChange(*key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]
