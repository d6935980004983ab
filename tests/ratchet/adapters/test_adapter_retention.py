"""A version goes in an order that leaves nothing half-gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.retention import remove_leftovers, remove_version_folder
from ratchet.service.errors import NotAllowed
from schemas.records.decision import RemoveFolder
from tests.ratchet.adapters.making_adapters import NOON, published
from tests.ratchet.adapters.making_decisions import archived, decided


def test_a_removal_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    # given a version whose removal was decided, by a process that died before it removed the folder
    store = RegistryStore(tmp_path)
    gone, kept = published(tmp_path, seed=1), published(tmp_path, seed=2)
    archived(store, registration(gone, tmp_path))
    decided(store, RemoveFolder(version="v1.0.1"), registration(kept, tmp_path))
    assert gone.exists()
    # then the next start removes it, and only it
    assert remove_leftovers(store) == [gone]
    assert (gone.exists(), kept.exists()) == (False, True)
    assert remove_leftovers(store) == []


def test_what_is_not_archived_keeps_its_folder(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)
    folder = published(tmp_path)
    decided(store, registration(folder, tmp_path))
    with pytest.raises(NotAllowed, match="only an archived version's folder is removed"):
        remove_version_folder(store, "small", "v1.0.1", who="orchestrator", at=NOON)
    assert folder.exists()
