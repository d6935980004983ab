"""An algorithm that another package registers goes through the same loop, whatever trainer it makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from ratchet.adapters.check import check_adapter
from ratchet.adapters.limits import AdapterLimits
from ratchet.runs.store import RunStore
from schemas.messages.training import TrainRequest
from services.trainer.settings import TrainerSettings
from services.trainer.train import do_run


@pytest.fixture
def hinge_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Installed as `pip` would: a folder on the path with the metadata of a distribution."""
    package = tmp_path / "site" / "ratchet_hinge_pairs-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: ratchet-hinge-pairs\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[ratchet.algorithms]\nhinge-pairs = tests.services.trainer.algorithms.preference_pairs:HingePairs\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    return "hinge-pairs"


def test_it_is_registered_and_trains_an_adapter_fit_for_traffic(settings: TrainerSettings, hinge_pairs: str) -> None:
    told = []
    knobs = {"epochs": 2, "batch": 4, "beta": 0.5, "learning_rate": 0.01}
    request = TrainRequest(request_id="run-1", agent_id="small", algorithm=hinge_pairs, hyperparameters=knobs)

    outcome = do_run(settings, RunStore(settings.adapters_dir).record(request), told.append)

    assert outcome is not None and outcome.status == "trained", outcome and outcome.reason
    folder = settings.adapters_dir / "small" / str(outcome.adapter_version)
    card = check_adapter(folder, AdapterLimits(max_rank=4))
    assert (card.algorithm, card.hyperparameters["beta"]) == ("hinge-pairs", 0.5)
    assert any(tensor.abs().max() > 0 for name, tensor in load_file(folder / "adapter_model.safetensors").items())
    steps = json.loads((folder / "training_report.json").read_text())["steps"]
    assert [step["step"] for step in steps] == list(range(1, 7))  # 12 pairs, 4 at a time, twice
    assert steps[0]["loss"] == pytest.approx(1.0, abs=1e-3)  # the policy is still its own reference
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert {(said["step"], said["steps"]) for said in told if said["stage"] == "training"} >= {(0, 6), (6, 6)}
