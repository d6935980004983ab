"""The difference of two adapters, against the plain formula and against what PEFT itself merges."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from ratchet.adapters.check import adapter_faults
from ratchet.adapters.diff import AdapterDiff, diff_adapters
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.publish import publish_adapter
from schemas.records.adapter_card import DataRange, DataWindow
from tests.ratchet.adapters.making_adapters import card, files, published, tensors

Q = "model.layers.0.self_attn.q_proj"


def update(seed: int, scaling: float, path: str = Q) -> np.ndarray:
    weights = tensors(seed)
    a, b = (weights[f"base_model.model.{path}.lora_{side}.weight"].astype("f8") for side in "AB")
    return scaling * (b @ a)


def test_norms_are_of_the_update_each_adapter_makes(tmp_path: Path) -> None:
    # given two adapters of different weights, the second with a larger scaling for q_proj
    before = publish_adapter(files(tensors(1)), card(), tmp_path, "small")
    after = publish_adapter(files(tensors(2), alpha_pattern={"q_proj": 16}), card(), tmp_path, "small")
    # when they are compared
    change = {module.module: module for module in diff_adapters(before, after).modules}[Q]
    # then norms, change and cosine are those of the full matrices
    one, two = update(1, 8 / 4), update(2, 16 / 4)
    assert change.norm_before == pytest.approx(np.linalg.norm(one))
    assert change.norm_after == pytest.approx(np.linalg.norm(two))
    assert change.norm_change == pytest.approx(np.linalg.norm(two - one))
    assert change.cosine == pytest.approx((one * two).sum() / np.linalg.norm(one) / np.linalg.norm(two))


def test_the_same_update_written_differently_is_no_change(tmp_path: Path) -> None:
    # given A twice as large and B half as large
    weights = tensors(1)
    other = {name: tensor * (2 if "lora_A" in name else 0.5) for name, tensor in weights.items()}
    folders = [publish_adapter(files(w), card(), tmp_path, "small") for w in (weights, other)]
    for change in diff_adapters(*folders).modules:
        assert change.norm_change == pytest.approx(0.0, abs=1e-5)
        assert change.cosine == pytest.approx(1.0)


@pytest.mark.parametrize("rslora", [False, True])
def test_against_the_base_model_all_is_new(tmp_path: Path, rslora: bool) -> None:
    folder = publish_adapter(files(tensors(1), use_rslora=rslora), card(), tmp_path, "small")
    change = {module.module: module for module in diff_adapters(None, folder).modules}[Q]
    assert (change.norm_before, change.cosine) == (0.0, None)
    assert change.norm_after == pytest.approx(np.linalg.norm(update(1, 8 / (math.sqrt(4) if rslora else 4))))
    assert diff_adapters(None, None) == AdapterDiff((), ())


def test_fields_of_the_cards_that_differ(tmp_path: Path) -> None:
    window = DataWindow(ranges=(DataRange(log="agent_interactions", start=0, end=10, sha256="c" * 64),), samples=80)
    before = published(tmp_path, hyperparameters={"lr": 0.001, "beta": 0}, metrics={"loss": 1.5})
    after = published(tmp_path, hyperparameters={"lr": 0.002}, metrics={"loss": 1.5}, data=window, parent="v1.0.1")
    changes = {(c.section, c.field): (c.before, c.after) for c in diff_adapters(before, after).fields}
    assert changes.pop(("data", "ranges"))[1][0]["end"] == 10
    assert changes == {
        ("card", "parent"): ("v1.0.0", "v1.0.1"),
        ("hyperparameters", "lr"): (0.001, 0.002),
        ("hyperparameters", "beta"): (0, None),
        ("data", "samples"): (0, 80),
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_an_adapter_as_peft_saves_it(tmp_path: Path, dtype: str) -> None:
    # given an adapter made and saved by PEFT itself, with ranks and alphas of its own for one module
    import peft
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=32, num_key_value_heads=2, **sizes))
    lora = peft.LoraConfig(
        r=4, target_modules="all-linear", rank_pattern={"q_proj": 2}, alpha_pattern={"layers.1.mlp.up_proj": 32}
    )
    model = peft.get_peft_model(base, lora)
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights)
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path / "saved")
    saved = {path.name: path for path in (tmp_path / "saved").iterdir()}
    # when it is published
    folder = publish_adapter(saved, card(), tmp_path, "small")
    # then it is fit for traffic, and its updates are those PEFT would merge into the base model
    assert adapter_faults(folder, AdapterLimits(max_rank=8)) == []
    found = {module.module: module.norm_after for module in diff_adapters(None, folder).modules}
    deltas = {
        name.removeprefix("base_model.model."): float(layer.get_delta_weight("default").detach().float().norm())
        for name, layer in model.named_modules()
        if isinstance(layer, peft.tuners.lora.LoraLayer)
    }
    assert len(deltas) == 14
    assert found == pytest.approx(deltas, rel=2e-2 if dtype != "float32" else 1e-5)
