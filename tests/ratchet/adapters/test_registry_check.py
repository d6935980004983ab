"""What `verify` finds: every place where disk, registry and ledger differ, and nothing where they do not."""

from __future__ import annotations

from pathlib import Path

from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.publish import publish_adapter, registration, remove_tree
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.retention import remove_version_folder
from ratchet.adapters.verification import registry_faults
from schemas.records.decision import Validate
from tests.ratchet.adapters.making_adapters import NOON, card, files, published, tensors
from tests.ratchet.adapters.making_decisions import archived, decided

LIMITS = AdapterLimits(max_rank=16)


def test_all_in_order_with_a_removed_version(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)
    archived(store, registration(published(tmp_path, seed=1), tmp_path))
    remove_version_folder(store, "small", "v1.0.1", who="orchestrator", at=NOON)
    decided(store, registration(published(tmp_path, seed=2), tmp_path), Validate(version="v1.0.2"))
    assert registry_faults(store, LIMITS) == []


def test_a_registry_behind_the_ledger_is_told_from_one_changed_by_hand(tmp_path: Path) -> None:
    # given a registry one decision behind, as a crash leaves it
    store = RegistryStore(tmp_path)
    decided(store, registration(published(tmp_path), tmp_path))
    one_behind = store.path.read_text()
    decided(store, Validate(version="v1.0.1"))
    store.path.write_text(one_behind)
    (behind,) = registry_faults(store, LIMITS)
    assert "at decision 1 of 2, as after a crash" in behind
    # and one in which somebody undid what was decided
    store.open()
    store.path.write_text(store.path.read_text().replace('"validated"', '"trained"'))
    (changed,) = registry_faults(store, LIMITS)
    assert "(agents: small): it was changed by hand" in changed


def test_another_adapter_properly_published_in_the_place_of_a_registered_one(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)
    folder = published(tmp_path, seed=1)
    decided(store, registration(folder, tmp_path))
    remove_tree(folder)
    elsewhere = publish_adapter(files(tensors(2)), card(), tmp_path / "elsewhere", "small")
    elsewhere.rename(folder)
    (fault,) = registry_faults(store, LIMITS)
    assert "is another adapter than was registered" in fault


def test_a_removed_version_that_came_back(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)
    archived(store, registration(published(tmp_path), tmp_path))
    remove_version_folder(store, "small", "v1.0.1", who="orchestrator", at=NOON)
    (tmp_path / "small" / "v1.0.1").mkdir()
    (fault,) = registry_faults(store, LIMITS)
    assert "should be gone" in fault
