"""`ratchet train --plan`: what a run takes, before a GPU is paid for."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.train.plan import PlannedKnobs
from services.trainer.algorithms.hyperparameters import (
    GrpoHyperparameters,
    MaskedGrpoHyperparameters,
)

PLAN = ["train", "--plan", "--model", "Qwen/Qwen2.5-7B-Instruct"]


def test_a_plan_has_memory_tokens_and_hours_and_says_whether_it_fits() -> None:
    run = CliRunner().invoke(app, [*PLAN, "--gpu-memory", "80", "--json"])

    plan = json.loads(run.stdout)
    assert plan["fits"] and plan["change"] == []
    assert plan["parameters"] == 7_615_616_512
    assert plan["tokens_per_step"] == 32 * 256 + 4 * 512
    assert plan["memory_gb"]["peak"] < 80 * 0.94
    assert 0 < plan["hours"] < 1


def test_what_does_not_fit_says_what_to_change() -> None:
    run = CliRunner().invoke(app, [*PLAN, "--gpu-memory", "24", "--set", "gradient_checkpointing=false"])

    assert run.exit_code == 0
    assert "it does not fit into 24 GB; it would with --set gradient_checkpointing=true" in run.stdout


def test_what_was_mistyped_is_said_in_a_sentence() -> None:
    lengths = CliRunner().invoke(app, [*PLAN, "--tokens", "512"])
    unknown = CliRunner().invoke(app, ["train", "--plan", "--model", "org/other"])

    assert (lengths.exit_code, unknown.exit_code) == (2, 1)
    assert "--tokens is '512'" in lengths.stderr
    assert "the size of 'org/other' is not known" in unknown.stderr


def test_a_plan_counts_what_a_run_would_take_from_options_and_settings() -> None:
    """The example of docs/training.md is exported, then typed."""
    settings = {
        "RATCHET_TRAINER_MODEL": "qwen2.5-7b",
        "RATCHET_TRAINER_HYPERPARAMETERS": '{"micro_batch_tokens": 8192}',
    }
    spread = {"RATCHET_TRAINER_FSDP": "yes", "RATCHET_TRAINER_PROCESSES": "4"}

    fits = CliRunner().invoke(app, ["train", "--plan", "--json"], env=settings)
    typed = ["--set", "micro_batch_tokens=16384", "--epochs", "3", "--json"]
    other = CliRunner().invoke(app, ["train", "--plan", *typed], env=settings)
    four = CliRunner().invoke(app, ["train", "--plan", "--json"], env=settings | spread)

    assert json.loads(fits.stdout)["micro_batch_tokens"] == 8192 and json.loads(fits.stdout)["fits"]
    assert (json.loads(other.stdout)["micro_batch_tokens"], json.loads(other.stdout)["passes"]) == (16_384, 3)
    assert json.loads(four.stdout)["gpus"] == 4
    assert json.loads(four.stdout)["memory_gb"]["weights"] < 7


def test_a_remedy_that_is_taken_is_one() -> None:
    plan = ["train", "--plan", "--model", "qwen2.5-7b", "--json"]
    remedies = json.loads(CliRunner().invoke(app, plan).stdout)["change"]
    assert remedies

    for remedy in remedies:
        words = remedy.split()
        settings = dict(word.split("=", 1) for word in words if word.startswith("RATCHET_"))
        typed = [word for word in words if not word.startswith("RATCHET_")]
        assert json.loads(CliRunner().invoke(app, [*plan, *typed], env=settings).stdout)["fits"], remedy


def test_what_a_plan_does_not_count_is_named() -> None:
    run = CliRunner().invoke(app, [*PLAN, "--set", "micro_batch_token=8192", "--algorithm", "masked-grpo"])

    assert "not counted: micro_batch_token. Of hyperparameters these are" in " ".join(run.stdout.split())


def test_a_file_of_accelerate_is_not_read_and_the_plan_says_so() -> None:
    run = CliRunner().invoke(app, [*PLAN, "--gpus", "4"], env={"RATCHET_TRAINER_ACCELERATE_CONFIG": "two.yaml"})

    assert "on each of 4 GPUs" in run.stdout
    assert "not read: two.yaml; counted are --gpus" in " ".join(run.stdout.split())


@pytest.mark.parametrize(
    ("sources", "told"),
    [(None, "(by reference or correction or big_model or approval)"), ("correction", "(by correction)")],
)
def test_a_plan_says_that_demonstrations_would_teach_alone(sources: str | None, told: str) -> None:
    run = CliRunner().invoke(app, PLAN, env={"RATCHET_DEMONSTRATIONS": sources})

    assert f"where the log has 8 demonstrations or more {told}, those alone teach" in " ".join(run.stdout.split())


@pytest.mark.parametrize("knobs", [GrpoHyperparameters, MaskedGrpoHyperparameters])
def test_the_knobs_of_a_plan_are_the_trainers(knobs: type[GrpoHyperparameters]) -> None:
    fields = knobs.model_fields

    for name, field in PlannedKnobs.model_fields.items():
        assert (fields[name].default, fields[name].metadata) == (field.default, field.metadata), name


@pytest.mark.parametrize(
    ("typed", "settings", "sentence"),
    [
        (["--set", "lora_rank=many"], {}, "lora_rank"),
        (["--set", "lora_rank"], {}, "not of the form name=value"),
        (["--list"], {}, "choose one"),
        (["--algorithm", "kto"], {}, "kto can't be planned: counted are grpo, masked-grpo"),
        (["--algorithm", "kto"], {}, "with a reference beside them"),
        ([], {"RATCHET_TRAINER_ACCELERATE_CONFIG": "two.yaml"}, "two.yaml (RATCHET_TRAINER_ACCELERATE_CONFIG) has"),
        ([], {"RATCHET_TRAINER_WEIGHTS": "7bit"}, "RATCHET_TRAINER_WEIGHTS is '7bit'"),
        ([], {"RATCHET_TRAINER_WEIGHTS": "4bit", "RATCHET_TRAINER_FSDP": "1"}, "can't be spread"),
        ([], {"RATCHET_TRAINER_HYPERPARAMETERS": "{"}, "RATCHET_TRAINER_HYPERPARAMETERS is '{'"),
    ],
)
def test_what_no_run_would_take_is_not_planned(typed: list[str], settings: dict[str, str], sentence: str) -> None:
    run = CliRunner().invoke(app, [*PLAN, *typed], env=settings)

    assert run.exit_code == 2
    assert sentence in " ".join(run.stderr.split())


def test_what_is_only_for_a_plan_begins_no_run_of_another_model() -> None:
    run = CliRunner().invoke(app, ["train", "--model", "qwen2.5-7b"])

    assert run.exit_code == 2
    assert "are for --plan" in run.stderr
