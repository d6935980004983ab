"""The bad adapter: what the primary learned, turned around, and put past the gate under an operator's name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from demos.sabotage import REASON, WHO, inject_bad_adapter, turned_around
from ratchet.adapters.check import check_adapter
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from ratchet.service.errors import AdapterError
from schemas.records.decision import DecisionDraft, Promote, Validate
from tests.ratchet.adapters.making_adapters import BASE, NOON, published, tensors


def with_a_primary(folder: Path) -> RegistryStore:
    store = RegistryStore(folder)
    move = registration(published(folder), folder)
    for each in (move, Validate(version=move.version), Promote(version=move.version)):
        draft = DecisionDraft(agent_id="small", move=each, who="operator:ada", at=NOON, reason="a test")
        store.update(lambda _, draft=draft: draft)  # type: ignore[misc]
    return store


def test_only_the_b_matrices_are_turned_around(tmp_path: Path) -> None:
    weights = tmp_path / "adapter_model.safetensors"
    weights.write_bytes(save(tensors()))

    before, after = load(weights.read_bytes()), load(turned_around(weights))

    assert before.keys() == after.keys()
    for name, tensor in before.items():
        sign = -1.0 if ".lora_B." in name else 1.0
        assert np.array_equal(after[name], sign * tensor), name


def test_it_is_a_whole_adapter_that_an_operator_calls_validated(tmp_path: Path) -> None:
    store = with_a_primary(tmp_path)

    version = inject_bad_adapter(store, "small")

    assert version == "v1.0.2"
    check_adapter(tmp_path / "small" / version, AdapterLimits(max_rank=64, base=BASE))
    entry = store.read().agent("small").versions[version]
    assert (entry.state, entry.parent) == ("validated", "v1.0.1")
    injected = [decision for decision, _ in store.ledger.read()][-2:]
    assert [(d.move.kind, d.who, d.reason) for d in injected] == [
        ("register", WHO, REASON),
        ("validate", WHO, REASON),
    ]


def test_a_base_model_has_nothing_to_turn_around(tmp_path: Path) -> None:
    with pytest.raises(AdapterError):
        inject_bad_adapter(RegistryStore(tmp_path), "small")


def test_weights_of_another_number_format_are_refused(tmp_path: Path) -> None:
    weights = tmp_path / "adapter_model.safetensors"
    weights.write_bytes(save({name: tensor.astype("f2") for name, tensor in tensors().items()}))

    with pytest.raises(AdapterError, match="F16"):
        turned_around(weights)
