from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.adapters.check import check_lora
from ratchet.adapters.folder import adapter_folder, adapter_sha256, served_name
from ratchet.adapters.limits import AdapterLimits
from ratchet.service.errors import AdapterError, StorageUnavailable
from tests.disks import MayNotMount, run_where_mounting_is_allowed, unreadable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "small" / "v1.0.1"
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_text("weights")
    return folder


def test_an_adapter_lies_under_its_agent_and_version(folder: Path, tmp_path: Path) -> None:
    assert adapter_folder(tmp_path, "small", "v1.0.1") == folder


@pytest.mark.parametrize("version", ["", "1.0.1", "v1.0", "v1.0.1 ", "v1.0.1\n", "..", "v1.0.1/..", "../small/v1.0.1"])
def test_what_is_no_version_never_becomes_a_path(folder: Path, tmp_path: Path, version: str) -> None:
    with pytest.raises(AdapterError, match="no adapter version"):
        adapter_folder(tmp_path, "small", version)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_folder_that_is_not_whole_is_no_adapter(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(AdapterError, match=name):
        adapter_folder(tmp_path, "small", "v1.0.1")


def test_the_sum_follows_what_shapes_the_answers_and_nothing_else(folder: Path) -> None:
    before = adapter_sha256(folder)
    (folder / "README.md").write_text("a card")
    assert adapter_sha256(folder) == before
    (folder / "adapter_config.json").write_text('{"lora_alpha": 32}')
    assert adapter_sha256(folder) != before


def test_a_sick_disk_is_no_fault_of_the_adapter(folder: Path, request: pytest.FixtureRequest) -> None:
    try:
        with unreadable(folder / "adapter_config.json"):
            for read in (adapter_sha256, lambda of: check_lora(of, AdapterLimits())):
                with pytest.raises(StorageUnavailable, match=r"can't be read: Input/output error.*look at the disk"):
                    read(folder)
    except MayNotMount:
        run_where_mounting_is_allowed(request.node.nodeid)


def test_a_served_name_tells_versions_and_contents_apart() -> None:
    names = {served_name("small", version, sha) for version in ("v1.0.1", "v1.0.2") for sha in ("a" * 64, "b" * 64)}
    assert len(names) == 4
    assert served_name("small", "v1.0.1", "0123456789") == "small-v1.0.1-01234567"
