"""`ratchet adapters export`: what it makes is loaded with PEFT and transformers as any other program would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ratchet.adapters.export import holds, new_folder, write_record
from ratchet.adapters.publish import publish_adapter, registration
from ratchet.adapters.registry import RegistryStore
from schemas.messages.base import BaseModelIdentity
from services.cli.adapters.export import _convert
from services.cli.terminal import CommandError
from tests.acceptance.ratchet_command import ForkedRatchet as Ratchet
from tests.acceptance.ratchet_command import Ratchet as NewRatchet
from tests.ratchet.adapters.making_adapters import card, published
from tests.ratchet.adapters.making_decisions import decided


@pytest.fixture
def ratchet(tmp_path: Path) -> Ratchet:
    return Ratchet(tmp_path, {"USER": "ann"})


def made_with_peft(store: RegistryStore, base: Path) -> Path:
    """A version whose update is not zero."""
    import torch
    from peft import LoraConfig, get_peft_model

    from ratchet.models.loading import content_sha256, load_language_model
    from services.trainer.algorithms.policy import save_policy

    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    policy = get_peft_model(load_language_model(str(base), device="cpu").model, config)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.1)
    identity = BaseModelIdentity(name=base.name, revision=content_sha256(base))
    files = save_policy(policy, identity, store.folder.parent / "scratch")
    folder = publish_adapter(files, card(base=identity), store.folder, "small")
    decided(store, registration(folder, store.folder))
    return folder


def test_a_version_is_loaded_by_peft_alone_and_says_what_it_is(tmp_path: Path, ratchet: Ratchet) -> None:
    from peft import PeftConfig
    from safetensors.torch import load_file

    store = RegistryStore(tmp_path / "adapters")
    folder = published(store.folder, metrics={"loss": 0.5}, hyperparameters={"epochs": 2})
    decided(store, registration(folder, store.folder))

    made = ratchet("adapters", "export", "v1.0.1", "out", "--json").json

    assert made["version"] == "v1.0.1"
    assert PeftConfig.from_pretrained(str(tmp_path / "out")).peft_type == "LORA"
    assert load_file(tmp_path / "out" / "adapter_model.safetensors").keys()
    readme = (tmp_path / "out" / "README.md").read_text()
    assert readme.startswith('---\nbase_model: "small"\nlibrary_name: "peft"\n')
    assert "| epochs | 2 |" in readme and "| loss | 0.5 |" in readme
    assert str(tmp_path) not in readme
    assert (tmp_path / "out" / "adapter_model.safetensors").stat().st_mode & 0o200  # a copy of one's own


def converter(folder: Path, program: str) -> Path:
    """In the place of llama.cpp's."""
    made = folder / "convert_hf_to_gguf.py"
    made.write_text(program)
    return made


def test_merged_weights_say_what_the_adapter_says_and_a_converter_gets_them(tmp_path: Path, ratchet: Ratchet) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tests.ratchet.models.tiny_model import save_tiny_model

    base = save_tiny_model(tmp_path / "base")
    folder = made_with_peft(RegistryStore(tmp_path / "adapters"), base)

    gguf = converter(
        tmp_path,
        "import sys, pathlib\n"
        "folder, option, out = sys.argv[1:]\n"
        "assert option == '--outfile' and pathlib.Path(folder, 'model.safetensors').is_file()\n"
        "pathlib.Path(out).write_bytes(b'GGUF')\n",
    )

    asked = ("one-model", "--merged", "--model", str(base), "--gguf", str(gguf), "--json")
    made = ratchet("adapters", "export", "v1.0.1", *asked).json

    assert made["largest_difference"] < 1e-3
    assert made["gguf"] == "one-model/model.gguf"
    assert (tmp_path / "one-model" / "model.gguf").read_bytes() == b"GGUF"
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "one-model")
    plain = AutoModelForCausalLM.from_pretrained(base)
    ids = torch.tensor([AutoTokenizer.from_pretrained(tmp_path / "one-model").encode("sort: cab")])
    with torch.inference_mode():
        before = plain(ids).logits
        apart = PeftModel.from_pretrained(plain, str(folder))(ids).logits
        assert torch.allclose(merged(ids).logits, apart, atol=1e-4)
        assert not torch.allclose(before, apart, atol=1e-2)


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["v1.0.0", "out"], "is the base model, and has no adapter"),
        (["v1.0.7", "out"], "no adapter 'v1.0.7'"),
        (["v1.0.1", "adapters"], "is there already"),
        (["v1.0.1", "out", "--merged"], "name the base model of v1.0.1 with --model"),
        (["v1.0.1", "out", "--gguf", "x.py"], "go with --merged"),
        (["v1.0.1", "out", "--dtype", "bfloat16"], "go with --merged"),
        (["v1.0.1", "out", "--merged", "--model", "m", "--gguf", "x.py"], "convert_hf_to_gguf.py"),
    ],
)
def test_what_can_not_be_exported_is_refused_and_leaves_nothing(
    tmp_path: Path, ratchet: Ratchet, typed: list[str], sentence: str
) -> None:
    store = RegistryStore(tmp_path / "adapters")
    folder = published(store.folder)
    decided(store, registration(folder, store.folder))

    refused = ratchet("adapters", "export", *typed)

    assert refused.code != 0
    assert sentence in " ".join(refused.err.split())
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("*unfinished*"))


def test_another_base_model_than_the_adapters_is_refused(tmp_path: Path, ratchet: Ratchet) -> None:
    from tests.ratchet.models.tiny_model import save_tiny_model

    made_with_peft(RegistryStore(tmp_path / "adapters"), save_tiny_model(tmp_path / "base"))
    other = save_tiny_model(tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-4}))

    refused = ratchet("adapters", "export", "v1.0.1", "out", "--merged", "--model", str(other))

    assert refused.code == 1
    assert "name that model with --model" in " ".join(refused.err.split())
    assert not (tmp_path / "out").exists()


def test_a_hub_that_is_away_is_said_and_what_was_made_is_pushed_again(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path / "adapters")
    folder = published(store.folder)
    decided(store, registration(folder, store.folder))
    ratchet = NewRatchet(tmp_path, {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": "hf_x"})
    push = ("adapters", "export", "v1.0.1", "out", "--push", "team/small")

    refused = ratchet(*push)
    readme = tmp_path / "out" / "README.md"
    readme.write_text(readme.read_text() + "Of the team.\n")
    again = ratchet(*push)

    assert refused.code == again.code == 1
    assert "out is made, but the hub did not take it" in " ".join(refused.err.split())
    assert (tmp_path / "out" / "adapter_config.json").is_file()
    assert "out was made before, and is pushed as it is" in again.err
    assert "the hub did not take it" in " ".join(again.err.split())
    assert readme.read_text().endswith("Of the team.\n")


def test_only_the_same_export_whole_and_with_nothing_added_is_pushed_again(tmp_path: Path) -> None:
    made_from = {"agent": "small", "version": "v1.0.1", "merged": None}
    (tmp_path / "out").mkdir()
    weights = tmp_path / "out" / "adapter_model.safetensors"
    weights.write_bytes(b"weights")
    write_record(tmp_path / "out", made_from)

    assert holds(tmp_path / "out", made_from)
    assert not holds(tmp_path / "out", made_from | {"version": "v1.0.2"})
    assert not holds(tmp_path / "none", made_from) and not holds(weights, made_from)
    (tmp_path / "out" / "notes.txt").write_text("of a person")
    assert not holds(tmp_path / "out", made_from)
    (tmp_path / "out" / "notes.txt").unlink()
    weights.write_bytes(b"others")
    assert not holds(tmp_path / "out", made_from)
    (tmp_path / "out" / "export.json").write_text("{")
    assert not holds(tmp_path / "out", made_from)


def test_a_converter_that_fails_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    gguf = converter(tmp_path, "import sys; sys.exit('no such architecture')")

    with pytest.raises(CommandError, match="no such architecture"), new_folder(tmp_path / "out") as being_made:
        _convert(gguf, being_made)

    assert not (tmp_path / "out").exists()
