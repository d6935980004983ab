"""A misspelt setting is named with the nearest one; a value that can't be used ends the start at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ratchet.cli.doctor.checks import settings_checks
from ratchet.service.settings_check import settings_classes, unknown_names

ROOT = Path(__file__).parents[3]
AT_ONCE_S = 15
QUIET = {name: value for name, value in os.environ.items() if not name.startswith("RATCHET_")}


def run(*command: str, folder: Path = ROOT, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = QUIET | {"PYTHONPATH": str(folder)} | settings
    return subprocess.run(
        [sys.executable, *command], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_settings_of_every_service_are_known() -> None:
    names = {one.__name__ for one in settings_classes()}

    assert names >= {"FleetSettings", "AgentSettings", "OrchestratorSettings", "ScorerSettings", "TrainerSettings"}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("RATCHET_SAMPELS", "RATCHET_SAMPLES"),
        ("RATCHET_AGENT_MAXBATCH", "RATCHET_AGENT_MAX_BATCH"),
        ("RATCHET_SCORER_JUDGE_APIKEY", "RATCHET_SCORER_JUDGE_API_KEY"),
        ("RATCHET_TRAINER_MODELL", "RATCHET_TRAINER_MODEL"),
        ("RATCHET_LOG_KEEP_GBS", "RATCHET_LOG_KEEP_GB"),
        ("RATCHET_SECRET_DIR", "RATCHET_SECRETS_DIR"),
    ],
)
def test_a_misspelt_name_is_told_with_the_nearest_one(name: str, meant: str) -> None:
    assert unknown_names([name]) == [f"{name} is no setting, and nobody reads it: is {meant} meant?"]


def test_names_of_settings_and_names_of_others_are_not_remarked_on() -> None:
    every = [f"RATCHET_{field.upper()}" for one in settings_classes() for field in one.model_fields]

    assert unknown_names([*every, "RATCHET_TAG", "RATCHET_STATE_DIR", "PATH", "MYRATCHET_SAMPELS"]) == []


def test_every_variable_of_the_example_for_compose_is_known() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    names = [line[1:].partition("=")[0] for line in lines if line.startswith("#RATCHET_")]

    assert len(names) > 10
    assert unknown_names(names) == []


@pytest.mark.parametrize("service", ["orchestrator", "agent", "scorer", "trainer"])
def test_a_service_warns_at_its_start(service: str) -> None:
    ended = run("-m", f"services.{service}", RATCHET_SAMPELS="4", RATCHET_LOG_KEEP_GB="plenty")

    assert ended.returncode == 1
    assert "is RATCHET_SAMPLES meant?" in ended.stdout
    assert "RATCHET_LOG_KEEP_GB" in ended.stdout


def test_the_job_of_compose_names_each_setting_that_can_not_be_used() -> None:
    ended = run(
        "-m", "ratchet.service.settings_check",
        RATCHET_AGENT_MAX_BATCH="0", RATCHET_TEMPERATURE="hot", RATCHET_SCORER_PREFETCH="-1", RATCHET_SAMPELS="4",
    )  # fmt: skip

    assert ended.returncode == 1
    for name in ("RATCHET_AGENT_MAX_BATCH: ", "RATCHET_TEMPERATURE: ", "RATCHET_SCORER_PREFETCH: "):
        assert ended.stderr.count(name) == 1
    assert "is RATCHET_SAMPLES meant?" in ended.stderr


def test_the_settings_of_all_services_are_checked_where_their_other_files_are_not(tmp_path: Path) -> None:
    """An image has of the other services their settings.py alone (services/Dockerfile)."""
    for name in ("ratchet", "schemas"):
        (tmp_path / name).symlink_to(ROOT / name)
    for file in (*(ROOT / "services").glob("*/__init__.py"), *(ROOT / "services").glob("*/settings.py")):
        (tmp_path / "services" / file.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tmp_path / "services" / file.parent.name / file.name)
    (tmp_path / "services" / "__init__.py").touch()

    ended = run(
        "-m", "ratchet.service.settings_check", folder=tmp_path,
        RATCHET_AGENT_MAX_BATCH="0", RATCHET_TEMPERATURE="hot",
    )  # fmt: skip

    assert "RATCHET_AGENT_MAX_BATCH: " in ended.stderr and "RATCHET_TEMPERATURE: " in ended.stderr, ended.stderr

    of_others = {"RATCHET_SCORER": "of.my.own", "RATCHET_AGENT_ENGINE": "mine"}  # known where they are installed, maybe
    assert run("-m", "ratchet.service.settings_check", folder=tmp_path, **of_others).returncode == 0


def test_with_good_settings_the_job_says_nothing() -> None:
    ended = run("-m", "ratchet.service.settings_check", RATCHET_SAMPLES="4")

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("RATCHET_AGENT_MAX_BATCH", "0", "greater than or equal to 1"),
        ("RATCHET_SCORER", "nonsense", "there is no scorer 'nonsense'; installed are judge, likelihood, "),
        ("RATCHET_SCORER", "0.7*verifier:exact + judge", "some parts have a weight"),
        ("RATCHET_AGENT_ENGINE", "nonsense", "no such engine; installed are "),
    ],
)
def test_a_bad_value_ends_up_at_once_and_names_the_setting(tmp_path: Path, name: str, value: str, says: str) -> None:
    began = time.monotonic()

    ended = run("-m", "ratchet.cli", "up", RATCHET_STATE_DIR=str(tmp_path), **{name: value})

    said = " ".join((ended.stdout + ended.stderr).split())
    assert ended.returncode != 0
    assert name in said and says in said
    assert time.monotonic() - began < AT_ONCE_S
    assert not (tmp_path / "fleet.json").exists()


def test_up_warns_of_a_misspelt_name(tmp_path: Path) -> None:
    ended = run("-m", "ratchet.cli", "up", RATCHET_STATE_DIR=str(tmp_path), RATCHET_SAMPELS="4", RATCHET_SAMPLES="0")

    assert "is RATCHET_SAMPLES meant?" in ended.stdout + ended.stderr


def test_the_doctor_warns_of_names_and_fails_at_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_SAMPELS", "4")
    monkeypatch.setenv("RATCHET_AGENT_MAX_BATCH", "0")

    checks = list(settings_checks(os.environ))

    assert any(check.level == "warn" and "RATCHET_SAMPELS" in check.says for check in checks)
    assert [check.level for check in checks if "RATCHET_AGENT_MAX_BATCH" in check.says] == ["fail"]
