from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ratchet.models.loading import content_sha256, identify, load_language_model
from ratchet.service.errors import EngineError
from tests.ratchet.models.tiny_model import MAX_POSITIONS, save_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def test_a_folder_is_loaded_ready_to_generate(folder: Path) -> None:
    loaded = load_language_model(str(folder), device="cpu")
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert next(loaded.model.parameters()).dtype == torch.float32
    assert loaded.max_positions == MAX_POSITIONS
    assert loaded.end_ids == {loaded.tokenizer.eos_token_id}


def test_a_folder_is_known_by_its_name_and_content_wherever_it_lies(folder: Path, tmp_path: Path) -> None:
    identity = identify(folder, str(folder))
    copy = tmp_path / "tiny"
    save_tiny_model(copy)
    assert identify(copy, str(copy)) == identity
    assert str(identity) == f"tiny@{content_sha256(folder)[:12]}"

    (copy / "config.json").write_text("{}")
    assert identify(copy, str(copy)).revision != identity.revision


def test_a_hub_snapshot_is_known_by_its_name_and_commit() -> None:
    snapshot = Path("cache/models--org--name/snapshots/0123456789abcdef")
    assert str(identify(snapshot, "org/name")) == "org/name@0123456789ab"


def test_the_number_format_can_be_chosen(folder: Path) -> None:
    loaded = load_language_model(str(folder), dtype="bfloat16", device="cpu")
    assert next(loaded.model.parameters()).dtype == torch.bfloat16


def test_a_broken_model_is_an_error_that_names_it(folder: Path, tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "torn")
    (tmp_path / "torn" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(EngineError, match="torn can't be loaded"):
        load_language_model(str(tmp_path / "torn"))
