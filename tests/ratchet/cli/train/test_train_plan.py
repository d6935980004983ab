"""`ratchet train --plan`: what a run takes, before a GPU is paid for."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from ratchet.cli.app import app

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
