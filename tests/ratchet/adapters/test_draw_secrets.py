"""The secret of an experiment's draws: named by its hash when it begins, told when it ends."""

from __future__ import annotations

from pathlib import Path

from ratchet.adapters.decisions import DecisionLedger
from ratchet.adapters.draw_secrets import DRAW_KEY, is_committed_to
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.signatures import Signing
from schemas.records.decision import Conclude, RunningExperiment, StartExperiment, Validate
from tests.ratchet.adapters.making_decisions import decided, experiment, register


def store_in(folder: Path) -> RegistryStore:
    return RegistryStore(folder / "adapters", Signing(folder / "decision-keys", folder / "logs"))


def started(store: RegistryStore) -> RunningExperiment:
    """A canary whose draws have a secret."""
    assert store.draws is not None
    plain = experiment("v1.0.1")
    plan = {"draw_sha256": store.draws.commitment(plain.experiment_id)}
    canary = plain.model_copy(update={"parameters": {"plan": plan}})
    decided(store, register("v1.0.1"), Validate(version="v1.0.1"), StartExperiment(experiment=canary))
    return canary


def test_the_decision_that_ends_an_experiment_tells_its_secret_and_no_other_does(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.open()
    canary = started(store)

    decided(store, Conclude(experiment_id=canary.experiment_id, verdict="inconclusive"))

    *before, last = [decision for decision, _ in DecisionLedger(tmp_path / "adapters").read()]
    assert [decision.draws for decision in before] == [None] * len(before)
    assert last.draws is not None
    assert is_committed_to(canary, last.draws[canary.experiment_id])
    assert not is_committed_to(canary, "another secret")


def test_the_secret_is_the_same_after_a_restart_and_lost_with_its_key(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.open()
    canary = started(store)

    again = store_in(tmp_path).draws
    assert again is not None
    assert again.secret(canary)
    key = tmp_path / "decision-keys" / DRAW_KEY
    assert key.stat().st_mode & 0o777 == 0o600
    key.write_bytes(bytes(32))
    assert again.secret(canary) is None
