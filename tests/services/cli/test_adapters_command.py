"""`ratchet adapters` as an operator uses it: what he sees, what he may do, and that all of it is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from ratchet.adapters.manifest import read_card
from ratchet.adapters.publish import registration, remove_tree
from ratchet.adapters.registry import RegistryStore
from ratchet.service.settings import FleetSettings
from schemas.api.status import HeldUp
from schemas.records.decision import Conclude, Distrust, Promote, StartExperiment, Validate
from services.cli.adapters.view import render_decisions, render_entry
from services.cli.status import scorer_faults
from tests.acceptance.ratchet_command import ForkedRatchet as Ratchet
from tests.ratchet.adapters.making_adapters import published
from tests.ratchet.adapters.making_decisions import decided, experiment


@pytest.fixture
def store(tmp_path: Path) -> RegistryStore:
    """v1.0.1 is the primary; v1.0.2 is validated."""
    store = RegistryStore(tmp_path / "adapters")
    for n in (1, 2):
        folder = published(store.folder, seed=n, hyperparameters={"learning_rate": n / 1000}, metrics={"loss": 1 / n})
        decided(store, registration(folder, store.folder), Validate(version=folder.name))
    promotion = Promote(version="v1.0.1", experiment_id="canary-v1.0.1")
    decided(store, StartExperiment(experiment=experiment("v1.0.1")), promotion)
    return store


@pytest.fixture
def ratchet(tmp_path: Path) -> Ratchet:
    return Ratchet(tmp_path, {"USER": "ann", "LOGNAME": "ann"})


def test_looking_at_versions(store: RegistryStore, ratchet: Ratchet) -> None:
    decided(store, StartExperiment(experiment=experiment("v1.0.1", kind="watch")))
    listed = ratchet("adapters", "list")
    assert "small · primary v1.0.1 · v1.0.1 watched beside v1.0.0" in listed.out
    shown = ratchet("adapters", "show", "v1.0.1", "--json").json
    assert (shown["entry"]["state"], shown["card"]["metrics"]) == ("stable", {"loss": 1.0})
    kinds = [decision["move"]["kind"] for decision in shown["decisions"]]
    assert kinds == ["register", "validate", "start_experiment", "promote", "start_experiment"]
    compared = ratchet("adapters", "diff", "v1.0.1", "v1.0.2")
    assert "learning_rate" in compared.out
    assert "model.layers.0.self_attn.q_proj" in compared.out


def test_a_version_that_is_held_up_says_why_in_the_place_of_its_state(store: RegistryStore) -> None:
    agent = store.read().agent("small")
    held = HeldUp(name="v1.0.2", reason="it was trained on another model", tries=0, again_at=None)
    console = Console(width=120, record=True)

    console.print(render_entry(agent, agent.versions["v1.0.2"], None, held_up=held))

    assert "validated: v1.0.2 is not tried: it was trained on another model" in console.export_text()


def test_a_version_whose_experiment_was_aborted_says_why(store: RegistryStore, ratchet: Ratchet) -> None:
    begun = StartExperiment(experiment=experiment("v1.0.2", "v1.0.1"))
    decided(store, begun, Conclude(experiment_id="canary-v1.0.2", verdict="aborted"))

    shown = ratchet("adapters", "show", "v1.0.2").out

    assert "because for a test" in " ".join(shown.split())
    assert "conclude" in shown


def test_eighty_columns_hold_a_version_and_its_decisions(store: RegistryStore) -> None:
    agent, decisions = store.read().agent("small"), [decision for decision, _ in store.ledger.read()]
    entry = agent.versions["v1.0.1"]
    card = read_card(store.folder / str(entry.folder)).model_copy(
        update={
            "metrics": {"reward": 0.12345678901234567, "steps": 128},
            "hyperparameters": {"learning_rate": 0.00012345678, "lora_targets": ["q_proj"] * 20},
        }
    )
    reason = "its score e-value is 31.4 of the 20 that promote, after 120 tasks of each of the two arms in all"
    narrow = Console(width=80, record=True)

    narrow.print(render_entry(agent, entry, card, decisions, whole=False))
    narrow.print(render_decisions([decisions[-1].model_copy(update={"reason": reason})]))
    shown = narrow.export_text()
    narrow.print(render_entry(agent, entry, card))
    whole = narrow.export_text()

    assert max(map(len, shown.splitlines())) <= 80
    assert "reward 0.1235  steps 128" in shown and "q_proj" not in shown and "q_proj" in whole
    below = shown.splitlines()[-2:]
    assert " ".join(" ".join(below).split()) == reason


def test_moves_by_hand_are_decisions_with_a_name_and_a_reason(store: RegistryStore, ratchet: Ratchet) -> None:
    # when an operator promotes, rolls back and freezes
    assert ratchet("adapters", "promote", "v1.0.2", "--reason", "it is polite", "--json").json["revision"] == 7
    rolled_back = ratchet("adapters", "rollback", "--reason", "it is rude")
    assert "v1.0.2   rolled_back" in rolled_back.out
    assert ratchet("adapters", "freeze", "--reason", "holidays").code == 0
    # then the ledger has his name, his words and what was checked
    newest = ratchet("adapters", "history", "-n", "3", "--json").json
    assert [(d["who"], d["move"]["kind"], d["reason"]) for d in newest] == [
        ("operator:ann", "promote", "it is polite"),
        ("operator:ann", "roll_back", "it is rude"),
        ("operator:ann", "freeze", "holidays"),
    ]
    sha256 = store.read().agent("small").versions["v1.0.2"].sha256
    assert newest[0]["evidence"] == {"checked": "v1.0.2", "sha256": sha256}
    # and a promotion is refused in one sentence until it is lifted
    refused = ratchet("adapters", "promote", "v1.0.2", "--reason", "after all")
    assert (refused.code, len(refused.err.splitlines())) == (1, 1)
    assert "frozen by operator:ann" in refused.err
    assert ratchet("adapters", "unfreeze").code == 0
    assert store.open().agent("small").frozen is None


@pytest.mark.parametrize(
    ("typed", "code", "sentence"),
    [
        (["promote", "v1.0.2"], 2, "Missing option '--reason'"),
        (["rollback"], 2, "Missing option '--reason'"),
        (["promote", "v1.0.9", "--reason", "x"], 2, "no adapter 'v1.0.9'; it has v1.0.0, v1.0.1, v1.0.2"),
        (["list", "--agent", "nobody"], 2, "no agent 'nobody'; there are: small"),
        (["rollback", "v1.0.2", "--reason", "x"], 1, "neither the primary nor the candidate"),
        (["promote", "v9", "--reason", "x"], 2, "agent small has no"),
        (["rollback", "v9", "--reason", "x"], 2, "'v9'"),
        (["freeze", "--reason", " "], 2, "say why"),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    store: RegistryStore, ratchet: Ratchet, typed: list[str], code: int, sentence: str
) -> None:
    ran = ratchet("adapters", *typed)
    assert (ran.code, sentence in ran.err) == (code, True), ran.err
    assert store.read().revision == 6


def test_a_tampered_version_is_not_promoted_and_verify_finds_it(store: RegistryStore, ratchet: Ratchet) -> None:
    # given a byte changed in a version, a folder nobody registered, and a lost one
    found = ratchet("adapters", "verify", "--json").json
    assert (found["ok"], found["faults"], found["decisions"], found["signed"]) == (True, [], 6, 0)
    weights = store.folder / "small" / "v1.0.2" / "adapter_model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    published(store.folder, seed=3)
    remove_tree(store.folder / "small" / "v1.0.1")
    # then it gets no traffic
    refused = ratchet("adapters", "promote", "v1.0.2", "--reason", "x")
    assert refused.code == 1
    assert "not fit for traffic, so nothing was changed" in refused.err
    # and each is named
    verified = ratchet("adapters", "verify", "--json")
    assert verified.code == 1
    lost, tampered, unknown = verified.json["faults"]
    assert "v1.0.1 has no manifest.json" in lost
    assert "was changed (sha256" in tampered
    assert "v1.0.3 is published but not registered" in unknown


def test_a_broken_registry_is_rebuilt_and_the_old_file_kept(store: RegistryStore, ratchet: Ratchet) -> None:
    before = store.read()
    store.path.write_bytes(b'{"revision": 6')
    broken = ratchet("adapters", "list")
    assert broken.code == 1
    assert "ratchet adapters rebuild" in broken.err
    rebuilt = ratchet("adapters", "rebuild", "--json").json
    assert rebuilt["revision"] == 6
    assert Path(ratchet.folder, rebuilt["kept"]).read_bytes() == b'{"revision": 6'
    assert store.read() == before


def test_a_forged_decision_is_named_and_nothing_is_rebuilt_on_it(store: RegistryStore, ratchet: Ratchet) -> None:
    ledger = store.ledger.path
    ledger.write_bytes(ledger.read_bytes().replace(b"for a test", b"for a bribe", 1))
    for command in ("verify", "rebuild"):
        ran = ratchet("adapters", command)
        assert ran.code == 1
        assert "line 1 (from byte 0) was changed after it was written" in ran.out + ran.err


def test_a_scorer_that_drifted_is_taken_as_the_measure_with_a_reason(store: RegistryStore, ratchet: Ratchet) -> None:
    decided(store, Distrust())
    (fault,) = scorer_faults(FleetSettings.read(adapters_dir=store.folder))
    assert "small: the scorer has drifted, training waits since 2026-01-05 12:00 UTC (for a test)" in fault
    assert "ratchet adapters reanchor" in fault
    taken = ratchet("adapters", "reanchor", "--reason", "a new rubric", "--json").json
    assert (taken["revision"], taken["agent"]["anchored"], taken["agent"]["distrusted"]) == (8, 8, None)
    assert scorer_faults(FleetSettings.read(adapters_dir=store.folder)) == []


def test_the_key_of_the_decisions_is_made_rotated_and_accepted_anew(store: RegistryStore, ratchet: Ratchet) -> None:
    assert "there is no key" in ratchet("adapters", "key").out
    # when the key is made, with a decision that the next one names
    assert ratchet("adapters", "key", "--rotate", "--reason", "spring").code == 0
    made = ratchet("adapters", "key", "--json").json
    assert (made["key"], len(made["keys"])) == (made["keys"][0], 2)
    # then what an operator decides is signed with it
    assert ratchet("adapters", "freeze").code == 0
    found = ratchet("adapters", "verify", "--json").json
    assert (found["ok"], found["decisions"], found["signed"], found["key"]) == (True, 8, 2, made["key"])
    # and a decision taken out is found, until somebody says in the ledger that it may stay out
    lines = store.ledger.path.read_bytes().splitlines(keepends=True)
    store.ledger.path.write_bytes(b"".join(lines[:-1]))
    for command in ("verify", "rebuild"):
        ran = ratchet("adapters", command)
        assert (ran.code, "ends after decision 7, but 8 were decided" in ran.out + ran.err) == (1, True)
    accepted = ratchet("adapters", "accept", "--reason", "the disk ate it")
    assert "7 decisions are taken as they stand; decision 8 says so" in accepted.out
    newest = ratchet("adapters", "history", "-n", "1", "--json").json
    assert [(one["who"], one["reason"]) for one in newest] == [("operator:ann", "the disk ate it")]
    assert ratchet("adapters", "verify").code == 0


def test_a_fleet_without_adapters_runs_the_base_model(ratchet: Ratchet) -> None:
    assert ratchet("adapters", "list", "--json").json["small"]["primary"] == "v1.0.0"
    assert ratchet("adapters", "verify").code == 0
    assert "nothing before v1.0.0" in ratchet("adapters", "rollback", "--reason", "x").err
