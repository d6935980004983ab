"""What is refused before it sees traffic, each with a sentence that says what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from ratchet.adapters.check import adapter_faults, check_adapter
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.publish import publish_adapter
from ratchet.service.errors import AdapterError
from schemas.messages.base import BaseModelIdentity
from tests.ratchet.adapters.making_adapters import BASE, card, files, published, tensors

LIMITS = AdapterLimits(max_rank=16, base=BASE)
UNSOUND = (
    "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight holds numbers that are infinite, NaN or of 131,072 "
    "and more: the training diverged; train again with a lower learning rate"
)
Q_A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


def faults(tmp_path: Path, weights: dict[str, Any] | None = None, **config_fields: Any) -> list[str]:
    return adapter_faults(publish_adapter(files(weights, **config_fields), card(), tmp_path, "small"), LIMITS)


def test_a_good_adapter_gives_its_card(tmp_path: Path) -> None:
    assert check_adapter(published(tmp_path), LIMITS) == card()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"peft_type": "IA3"}, "it is IA3, and only LoRA can be served"),
        ({"r": 32}, "its rank is 32, and the engines take 1 to 16"),
        ({"r": 0}, "the engines take 1 to 16"),
        ({"rank_pattern": {"v_proj": 64}}, "its rank is 64"),
        ({"rank_pattern": {"(": 4}}, "is not the end of a module's path"),
        ({"alpha_pattern": {r".*\.0\.q_proj": 4}}, "is not the end of a module's path"),
        ({"exclude_modules": ".*q_proj"}, "list them by name"),
        ({"layers_pattern": ["(a+)+"]}, "a pattern for layers"),
        ({"brand_new_option": {"x": 1}}, "unknown here: train without"),
        ({"megatron_config": {"x": 1}, "megatron_core": "os"}, "Megatron's layers"),
        ({"lora_alpha": 1e30}, "lower lora_alpha"),
        ({"use_dora": True}, "it uses DoRA"),
        ({"modules_to_save": ["lm_head"]}, "whole modules saved beside the LoRA"),
        ({"trainable_token_indices": [1]}, "trained token embeddings"),
        ({"bias": "all"}, "train with bias none"),
        ({"init_lora_weights": "pissa"}, "convert it to a plain LoRA"),
        ({"target_modules": "all-linear"}, "name the layers one by one"),
        ({"target_modules": ["q_proj", "v_proj", "lm_head"]}, "it adapts lm_head"),
        ({"target_modules": ["q_proj"]}, "no LoRA weight of its target modules"),
        ({"r": "four"}, "r: Input should be a valid integer"),
    ],
)
def test_configurations_no_engine_can_serve(tmp_path: Path, fields: dict[str, Any], sentence: str) -> None:
    assert sentence in "; ".join(faults(tmp_path, **fields))


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    found = faults(tmp_path, use_dora=True, bias="all", r=32)
    assert len([fault for fault in found if "train" in fault]) >= 3


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_one_number_that_is_not_finite(tmp_path: Path, number: float, kind: str) -> None:
    weights = {name: tensor.astype(kind) for name, tensor in tensors().items()}
    assert faults(tmp_path / "good", weights) == []
    weights[Q_A][2, 3] = number
    assert faults(tmp_path / "bad", weights) == [UNSOUND]


@pytest.mark.parametrize("number", [3e38, -3e38, 131_072.0])
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_one_number_that_is_finite_and_far_too_large(tmp_path: Path, number: float, kind: str) -> None:
    weights = {name: tensor.astype(kind) for name, tensor in tensors().items()}
    weights[Q_A][2, 3] = number
    assert faults(tmp_path / "bad", weights) == [UNSOUND]
    weights[Q_A][2, 3] = np.nextafter(np.asarray(2**17, kind), np.asarray(0, kind))
    assert faults(tmp_path / "large", weights) == []


def test_ranks_and_scaling_follow_patterns_that_are_the_end_of_a_path(tmp_path: Path) -> None:
    # given a key with escaped dots, as PEFT's documentation writes them, and one that only looks alike
    config = {"rank_pattern": {r"layers\.0\.self_attn.q_proj": 8, "proj": 2}, "alpha_pattern": {"q_proj": 16.0}}
    weights = tensors() | {name: tensor for name, tensor in tensors(rank=8).items() if "q_proj" in name}

    assert faults(tmp_path, weights, **config) == []


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({}, "holds no weights"),
        (tensors(rank=8), "no pair of rank 4"),
        ({name: t for name, t in tensors().items() if "lora_B" not in name}, "B (), which is no pair"),
        (tensors() | {"base_model.model.lm_head.weight": np.zeros((2, 2), "f4")}, "lm_head.weight, which is no LoRA"),
        (tensors() | {Q_A: np.zeros((4, 8), "i4")}, "it must be one of F64, F32, F16, BF16"),
    ],
)
def test_weights_that_are_no_plain_lora(tmp_path: Path, weights: dict[str, Any], sentence: str) -> None:
    assert sentence in "; ".join(faults(tmp_path, weights))


@pytest.mark.parametrize(
    ("base", "fits"),
    [
        (BASE, True),
        (BaseModelIdentity(name="renamed", revision="5" * 64), True),
        (BaseModelIdentity(name="small", revision="6" * 64), False),
        (BaseModelIdentity(name="small"), True),
        (BaseModelIdentity(name="other"), False),
        (None, True),
    ],
)
def test_the_base_model_must_be_the_agents(tmp_path: Path, base: BaseModelIdentity | None, fits: bool) -> None:
    found = adapter_faults(published(tmp_path), AdapterLimits(max_rank=16, base=base))
    assert bool(found) is not fits
    assert fits or "train on that model" in found[0]


def spoil_flipped_byte(folder: Path) -> None:
    content = bytearray((folder / "adapter_model.safetensors").read_bytes())
    content[-3] ^= 1
    (folder / "adapter_model.safetensors").write_bytes(content)


def spoil_config(folder: Path) -> None:
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 800}))


def spoil_truncated(folder: Path) -> None:
    (folder / "adapter_model.safetensors").write_bytes(b"short")


def spoil_missing(folder: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()


def spoil_extra_file(folder: Path) -> None:
    (folder / "adapter_model.bin").write_bytes(b"\x80\x04")


def spoil_link(folder: Path) -> None:
    weights = folder / "adapter_model.safetensors"
    weights.rename(folder.parent / "elsewhere")
    weights.symlink_to(folder.parent / "elsewhere")


def spoil_torn_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_bytes((folder / "manifest.json").read_bytes()[:-20])


def spoil_no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def spoil_renamed(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace("v1.0.1", "v1.0.2"))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (spoil_flipped_byte, "was changed (sha256"),
        (spoil_config, "bytes, not"),
        (spoil_truncated, "has 5 bytes, not"),
        (spoil_missing, "is missing"),
        (spoil_extra_file, "is not in the manifest"),
        (spoil_link, "no plain file"),
        (spoil_torn_manifest, "can't be read"),
        (spoil_no_manifest, "has no manifest.json"),
        (spoil_renamed, "copied or renamed by hand"),
    ],
)
def test_a_folder_that_is_not_as_published(tmp_path: Path, spoil: Any, sentence: str) -> None:
    # given a published adapter that somebody, or a disk, changed
    folder = published(tmp_path)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)
    spoil(folder)
    # then it is refused, and the sentence names the version
    with pytest.raises(AdapterError, match=r"adapter v1\.0\.1 of agent small is refused") as refused:
        check_adapter(folder, LIMITS)
    assert sentence in str(refused.value)


def test_a_manifest_never_leads_out_of_its_folder(tmp_path: Path) -> None:
    folder = published(tmp_path)
    folder.chmod(0o755)
    manifest = folder / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_text(manifest.read_text().replace("adapter_card.json", "../../secret.json"))
    assert "can't be read" in adapter_faults(folder, LIMITS)[0]


def test_headers_made_to_deceive(tmp_path: Path) -> None:
    good = save(tensors())
    length = int.from_bytes(good[:8], "little")
    header = json.loads(good[8 : 8 + length])
    name = next(name for name in header if name != "__metadata__")
    overlapping = header | {name: header[name] | {"data_offsets": [0, 4]}}
    for content in (
        b"",
        (2**63).to_bytes(8, "little") + b"{}",
        good[:-4],
        good + b"more",
        good[:8] + b"[" * length + good[8 + length :],
        _with_header(overlapping, good[8 + length :]),
        _with_header(header | {name: header[name] | {"shape": [-4, -8]}}, good[8 + length :]),
        _with_header(header | {name: 7}, good[8 + length :]),
    ):
        shutil.rmtree(tmp_path / "small", ignore_errors=True)
        source = files() | {"adapter_model.safetensors": content}
        (found,) = adapter_faults(publish_adapter(source, card(), tmp_path, "small"), LIMITS)
        assert "is no whole safetensors file" in found


def _with_header(header: dict[str, Any], data: bytes) -> bytes:
    encoded = json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + data
