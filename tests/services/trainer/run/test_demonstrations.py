"""References and corrections of a log teach: what is taken, what is left out, and what is told of it."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
import torch

from ratchet.adapters.evaluations import input_sha256
from ratchet.adapters.manifest import read_card
from ratchet.models.loading import content_sha256
from ratchet.models.tokenization import answers_of
from schemas.messages.task import Task
from schemas.messages.training import AdapterTrained
from schemas.messages.work import BASE_VERSION
from schemas.records.adapter_card import TAUGHT_DIGITS
from services.trainer.settings import TrainerSettings
from services.trainer.train import register
from tests.services.trainer.making_logs import feedback, give_feedback, line, write_log
from tests.services.trainer.run.test_training_run import folder, train
from tests.services.trainer.tiny_policy import loaded

KNOBS: dict[str, Any] = {"demonstrations": ["reference", "correction"], "epochs": 4, "learning_rate": 0.01}


def lines_of(base_model: Path, number: int, **changed: Any) -> list[bytes]:
    """A task that was answered twice, equally badly, so that only its reference teaches."""
    prompt = f"name {number}"
    fields: dict[str, Any] = {
        "input": prompt,
        "prompt_ids": tuple(prompt.encode()),
        "engine": f"transformers model@{content_sha256(base_model)[:12]}",
        "score": 0.0,
        "reference": f"ok {number}",
        "reference_score": 1.0,
    }
    return [line(f"t{number}", sample, **(fields | changed)) for sample in range(2)]


@pytest.fixture
def shown(settings: TrainerSettings, base_model: Path, tmp_path: Path) -> TrainerSettings:
    """Thirty-two tasks with a reference, two of which are worth less than full marks."""
    lines = [
        one
        for number in range(32)
        for one in lines_of(base_model, number, **({"reference_score": 0.5} if number < 2 else {}))
    ]
    return settings.model_copy(update={"logs_dir": write_log(tmp_path / "shown", lines)})


def taught_inputs(adapters_dir: Path, agent_id: str, version: str) -> frozenset[str]:
    """Return all inputs that were taught to a version, or to one that it was made from, as their cards have them."""
    found: set[str] = set()
    while version != BASE_VERSION:
        card = read_card(adapters_dir / agent_id / version)
        found.update(card.data.taught)
        version = card.parent
    return frozenset(found)


def is_taught(prompt: str, taught: frozenset[str]) -> bool:
    return input_sha256(prompt)[:TAUGHT_DIGITS] in taught


@torch.no_grad()
def loss_of_held_out(
    settings: TrainerSettings, base_model: Path, outcome: AdapterTrained, references: Sequence[str]
) -> float:
    """Return the loss of the published adapter: minus the logarithm of the texts' mean likelihood a token."""
    assert outcome.adapter_version is not None
    taught = taught_inputs(settings.adapters_dir, "small", outcome.adapter_version)
    policy, (answer_ids, _) = loaded(base_model, folder(settings, outcome)), answers_of(base_model)
    likelihoods = []
    for number, reference in enumerate(references):
        if not is_taught(f"name {number}", taught):
            prompt, answer = list(f"name {number}".encode()), answer_ids(reference)
            logps = torch.log_softmax(policy(input_ids=torch.tensor([prompt + answer])).logits[0], -1)
            chosen = [float(logps[len(prompt) - 1 + place, token]) for place, token in enumerate(answer)]
            likelihoods.append(math.exp(statistics.fmean(chosen)))
    return -math.log(statistics.fmean(likelihoods))


def test_references_at_full_marks_teach_where_no_group_does(shown: TrainerSettings) -> None:
    outcome = train(shown, hyperparameters=KNOBS)

    assert outcome.status == "trained", outcome.reason
    assert outcome.counts["demonstrations.reference"] == 27
    assert (outcome.counts["demonstrations.held_out"], outcome.counts["demonstrations.failed"]) == (3, 2)
    steps = json.loads((folder(shown, outcome) / "training_report.json").read_text())["steps"]
    assert steps[-1]["demonstration_loss"] < steps[0]["demonstration_loss"] - 1
    assert "gap" not in steps[0], "nothing is held against log-probabilities that nobody logged"
    # and the card names the prompts that were taught
    assert outcome.adapter_version is not None
    taught = taught_inputs(shown.adapters_dir, "small", outcome.adapter_version)
    of_log = [f"name {number}" for number in range(32)]
    assert len(read_card(folder(shown, outcome)).data.taught) == sum(is_taught(one, taught) for one in of_log) == 27
    assert not is_taught("name 0", taught) and not is_taught("another", taught)


def test_what_the_gate_asks_is_never_taught(shown: TrainerSettings) -> None:
    golden = [Task(task_id=f"g{number}", input=f"name  {number}") for number in range(2, 12)]
    home = shown.adapters_dir / "small"
    home.mkdir(parents=True)
    (home / "golden.jsonl").write_bytes(b"".join(task.encode() + b"\n" for task in golden))

    outcome = train(shown, hyperparameters=KNOBS)

    assert outcome.adapter_version is not None, outcome.reason
    taught = taught_inputs(shown.adapters_dir, "small", outcome.adapter_version)
    assert not any(is_taught(task.input, taught) for task in golden)
    assert outcome.counts["demonstrations.held_out"] == 10


def test_a_correction_teaches_in_place_of_a_reference(shown: TrainerSettings) -> None:
    give_feedback(shown.logs_dir, [feedback(f"t{number}", 0, 0.0, correction="better") for number in range(12)])

    outcome = train(shown, hyperparameters=KNOBS)

    counts = outcome.counts
    assert (
        counts["demonstrations.correction"] + counts["demonstrations.reference"]
        == 32 - counts["demonstrations.held_out"]
    )
    assert counts["demonstrations.correction"] >= 8 and "demonstrations.failed" not in counts


def test_without_demonstrations_a_log_teaches_as_before(settings: TrainerSettings) -> None:
    one = train(settings, "one", hyperparameters={"demonstrations": ["correction"]})
    same = train(settings, "same")

    assert one.status == "trained"
    assert one.adapter_sha256 == same.adapter_sha256


def test_too_few_demonstrations_take_nothing_from_the_groups(settings: TrainerSettings, base_model: Path) -> None:
    """`logs` is shared: the lines go to a copy."""
    lines = (settings.logs_dir / "agent_interactions.jsonl").read_bytes()
    logs = write_log(settings.adapters_dir.parent / "few", [lines, *lines_of(base_model, 1), *lines_of(base_model, 2)])

    after = train(settings.model_copy(update={"logs_dir": logs}), "run-2")

    assert after.counts["groups"] == 12
    assert not any(name.startswith("demonstrations") for name in after.counts)


def test_a_run_ends_when_held_out_texts_become_no_likelier_and_keeps_its_best_step(
    settings: TrainerSettings, base_model: Path, tmp_path: Path
) -> None:
    """References that have nothing in common: what a run learns of some by heart makes the others less likely."""
    references = ["".join(random.Random(number).choices(ascii_lowercase, k=6)) for number in range(32)]
    lines = [one for number, text in enumerate(references) for one in lines_of(base_model, number, reference=text)]
    by_heart = settings.model_copy(update={"logs_dir": write_log(tmp_path / "by-heart", lines)})

    outcome = train(by_heart, hyperparameters=KNOBS | {"epochs": 60})

    assert outcome.status == "trained", outcome.reason
    report = json.loads((folder(by_heart, outcome) / "training_report.json").read_text())
    looks = {step["step"]: step["held_out_loss"] for step in report["steps"] if "held_out_loss" in step}
    found = report["held_out"]
    assert found["texts"] == outcome.counts["demonstrations.held_out"] > 2
    assert found["best"] == looks[found["best_step"]] == min(looks.values()) < found["before"]
    assert found["best_step"] < found["ended"] < report["plan"]["steps"]
    assert outcome.metrics["held_out_best_step"] == found["best_step"]
    assert loss_of_held_out(by_heart, base_model, outcome, references) == pytest.approx(found["best"], abs=1e-3)


def test_references_that_the_parent_finds_far_unlikelier_than_the_others_do_not_teach_and_are_named(
    shown: TrainerSettings, base_model: Path, tmp_path: Path
) -> None:
    parent = train(shown, hyperparameters=KNOBS | {"epochs": 1})
    register(shown, parent)
    wrong = {5, 9, 20, 21}
    changed = {number: {"reference": "no, never"} for number in wrong}
    lines = [one for number in range(32) for one in lines_of(base_model, number, **changed.get(number, {}))]
    rough = shown.model_copy(update={"logs_dir": write_log(tmp_path / "rough", lines)})

    outcome = train(rough, "run-2", parent_version=parent.adapter_version, hyperparameters=KNOBS)

    assert outcome.adapter_version is not None, outcome.reason
    report = json.loads((folder(rough, outcome) / "training_report.json").read_text())
    assert {doubt["task_id"] for doubt in report["doubtful"]} == {f"t{number}" for number in wrong}
    counts = outcome.counts
    assert counts["demonstrations.doubtful"] == len(wrong)
    assert counts["demonstrations.reference"] + counts["demonstrations.held_out"] == 32 - len(wrong)
    assert len(read_card(folder(rough, outcome)).data.taught) == counts["demonstrations.reference"]


def test_groups_teach_after_the_demonstrations_where_that_is_asked(
    settings: TrainerSettings, base_model: Path, tmp_path: Path
) -> None:
    lines = [(settings.logs_dir / "agent_interactions.jsonl").read_bytes()]
    lines += [one for number in range(16) for one in lines_of(base_model, number)]
    both = settings.model_copy(update={"logs_dir": write_log(tmp_path / "both", lines)})

    outcome = train(both, hyperparameters={"demonstrations": ["reference"], "mixture": "first", "epochs": 1})

    steps = json.loads((folder(both, outcome) / "training_report.json").read_text())["steps"]
    shown = ["demonstration_loss" in step for step in steps]
    assert shown == sorted(shown, reverse=True) and len(set(shown)) == 2
    assert all(("gap" in step) is not is_shown for step, is_shown in zip(steps, shown, strict=True))
