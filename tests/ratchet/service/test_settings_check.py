"""A misspelt setting is named with the nearest one; a value that can't be used ends the start at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.service.errors import SettingsError
from ratchet.service.settings_check import require_usable, settings_classes, unknown_names
from services.cli.doctor import settings_checks
from tests.acceptance.ratchet_command import ForkedRatchet
from tests.programs import REPOSITORY, environment, run_module

JOB = "ratchet.service.settings_check"
LOCK = ".lock"


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
    lines = (REPOSITORY / ".env.example").read_text().splitlines()
    names = [line[1:].partition("=")[0] for line in lines if line.startswith("#RATCHET_")]

    assert len(names) > 10
    assert unknown_names(names) == []


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('RATCHET_LOG_KEEP_GB="plenty"  # a comment', "RATCHET_LOG_KEEP_GB: "),
        ("RATCHET_SCORER=likelihod", "RATCHET_SCORER: there is no scorer 'likelihod'"),
        ("export RATCHET_AGENT_ENGINE=vlm", "RATCHET_AGENT_ENGINE='vlm': no such engine"),
    ],
)
def test_a_bad_value_of_a_file_is_named(line: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(f"# ours\nRATCHET_SAMPLES=4\n{line}\n")

    ended = run_module(JOB, str(file), folder=REPOSITORY, settings={"RATCHET_LOG_KEEP_GB": "1"})

    assert ended.code == 1
    assert named in ended.err


@pytest.mark.parametrize("name", [".env", "none"])
def test_a_file_that_is_good_or_not_there_is_no_fault(name: str, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text('RATCHET_AGENTS=small,coder\nRATCHET_TRAINER_HYPERPARAMETERS={"epochs": 2}\n')

    ended = run_module(JOB, str(tmp_path / name), folder=REPOSITORY, settings={})

    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize("service", ["orchestrator", "agent", "scorer", "trainer"])
def test_a_service_warns_at_its_start(service: str) -> None:
    bad = {"RATCHET_SAMPELS": "4", "RATCHET_LOG_KEEP_GB": "plenty"}

    ended = run_module(f"services.{service}", folder=REPOSITORY, settings=bad)

    assert ended.code == 1
    assert "is RATCHET_SAMPLES meant?" in ended.out
    assert "RATCHET_LOG_KEEP_GB" in ended.out


def test_the_job_of_compose_names_each_setting_that_can_not_be_used() -> None:
    bad = {"RATCHET_AGENT_MAX_BATCH": "0", "RATCHET_TEMPERATURE": "hot", "RATCHET_SCORER_PREFETCH": "-1"}

    ended = run_module(JOB, folder=REPOSITORY, settings=bad | {"RATCHET_SAMPELS": "4"})

    assert ended.code == 1
    for name in bad:
        assert ended.err.count(f"{name}: ") == 1
    assert "is RATCHET_SAMPLES meant?" in ended.err


def test_the_settings_of_all_services_are_checked_where_their_other_files_are_not(tmp_path: Path) -> None:
    """An image has of the other services their settings.py alone (services/Dockerfile)."""
    for name in ("ratchet", "schemas", "workbench"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    for file in (*(REPOSITORY / "services").glob("*/__init__.py"), *(REPOSITORY / "services").glob("*/settings.py")):
        (tmp_path / "services" / file.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tmp_path / "services" / file.parent.name / file.name)
    (tmp_path / "services" / "__init__.py").touch()

    def run(settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
        env = environment(settings | {"PYTHONPATH": str(tmp_path)})
        return subprocess.run(
            [sys.executable, "-m", JOB], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    ended = run({"RATCHET_AGENT_MAX_BATCH": "0", "RATCHET_TEMPERATURE": "hot"})
    assert "RATCHET_AGENT_MAX_BATCH: " in ended.stderr and "RATCHET_TEMPERATURE: " in ended.stderr, ended.stderr

    of_others = {"RATCHET_SCORER": "of.my.own", "RATCHET_AGENT_ENGINE": "mine"}  # known where they are installed, maybe
    assert run(of_others).returncode == 0


def test_with_good_settings_the_job_says_nothing() -> None:
    ended = run_module(JOB, folder=REPOSITORY, settings={"RATCHET_SAMPLES": "4"})

    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("RATCHET_AGENT_MAX_BATCH", "0", "greater than or equal to 1"),
        ("RATCHET_SCORER", "nonsense", "there is no scorer 'nonsense'; installed are efficiency, judge, likelihood, "),
        ("RATCHET_SCORER", "0.7*verifier:exact + judge", "some parts have a weight"),
        ("RATCHET_AGENT_ENGINE", "nonsense", "no such engine; installed are "),
        ("RATCHET_SCORER", "judge:absolute", "the judge needs a model: set RATCHET_SCORER_JUDGE_MODEL"),
        ("RATCHET_SCORER", "verifier:exakt", "there is no verifier 'exakt': choose verifier:exact, "),
        ("RATCHET_AUDITOR", "0.9*verifier + 0.1*tokens:few", "`tokens` needs the tokens that earn a half"),
        ("RATCHET_LOGS_DIR", "/proc/version", "/proc/version is no folder"),
        ("RATCHET_LOGS_DIR", "/proc/sys/logs", "can't be used: /proc"),
    ],
)
def test_a_bad_value_ends_up_before_anything_is_started_and_names_the_setting(
    tmp_path: Path, name: str, value: str, says: str
) -> None:
    ended = ForkedRatchet(tmp_path, {"RATCHET_STATE_DIR": str(tmp_path), name: value})("up")

    said = " ".join((ended.out + ended.err).split())
    assert ended.code != 0
    assert name in said and says in said
    assert [one.name for one in tmp_path.iterdir()] == [LOCK], (
        "no broker was prepared, no supervisor told what to start"
    )


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["--model", "/no/such/folder"], "there is no folder /no/such/folder"),
        (["--model", "models/nothing-here"], "no model 'models/nothing-here' (revision None), neither a folder here"),
        (["--model", "smollm2"], "the model smollm2 is not in models/smollm2 yet: `ratchet models fetch smollm2`"),
        (["--engine", "echo", "--judge-model", "/no/judge"], "there is no folder /no/judge"),
    ],
)
def test_a_missing_model_ends_up_before_anything_is_started(tmp_path: Path, typed: list[str], says: str) -> None:
    hub = {"HF_ENDPOINT": "http://127.0.0.1:1", "HF_HUB_OFFLINE": "0"}  # nobody listens there

    ended = ForkedRatchet(tmp_path, {"RATCHET_STATE_DIR": str(tmp_path), **hub})("up", *typed)

    assert ended.code != 0
    assert says in " ".join(ended.err.split())
    assert [one.name for one in tmp_path.iterdir()] == [LOCK]


def test_what_is_typed_is_checked_in_the_place_of_the_environment(tmp_path: Path) -> None:
    ratchet = ForkedRatchet(tmp_path, {"RATCHET_STATE_DIR": str(tmp_path), "RATCHET_SCORER": "nonsense"})

    ended = ratchet("up", "--scorer", "verifier:exact and judge")

    assert ended.code != 0
    assert "the judge needs a model" in ended.err and "nonsense" not in ended.err
    assert [one.name for one in tmp_path.iterdir()] == [LOCK]


def test_a_scorer_of_somebody_else_s_needs_no_settings_here() -> None:
    ours = {"RATCHET_SCORER": "judge"}

    with pytest.raises(SettingsError, match="the judge needs a model"):
        require_usable(ours)
    require_usable(ours | {"RATCHET_EXTERNAL_SCORER": "true"})


def test_up_warns_of_a_misspelt_name(tmp_path: Path) -> None:
    bad = {"RATCHET_STATE_DIR": str(tmp_path), "RATCHET_SAMPELS": "4", "RATCHET_SAMPLES": "0"}

    ended = ForkedRatchet(tmp_path, bad)("up")

    assert "is RATCHET_SAMPLES meant?" in ended.out + ended.err


def test_the_doctor_warns_of_names_and_fails_at_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_SAMPELS", "4")
    monkeypatch.setenv("RATCHET_AGENT_MAX_BATCH", "0")

    checks = list(settings_checks(os.environ))

    assert any(check.level == "warn" and "RATCHET_SAMPELS" in check.says for check in checks)
    assert [check.level for check in checks if "RATCHET_AGENT_MAX_BATCH" in check.says] == ["fail"]
