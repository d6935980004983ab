"""The fleet that was started in a folder is found from any other, and who finds none is told how."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import typer

from ratchet.bus.amqp.short_connection import unreachable
from ratchet.service.settings import FleetSettings
from services.cli.fleet.folder import FROM_ELSEWHERE, FleetAccess, FleetFolder
from services.cli.fleet.options import FleetOptions
from services.cli.terminal import FaultsAsSentences
from tests.services.cli.started import started


def test_after_its_settings_are_read_a_shell_elsewhere_finds_the_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "it's home", tmp_path / "elsewhere"
    for folder in (home, elsewhere):
        folder.mkdir()
    monkeypatch.chdir(home)
    folder = FleetFolder.here()
    folder.root.mkdir()
    folder.write_record(started(FleetOptions(agents=("coder",)), {}))
    folder.write_settings(FleetSettings.read())
    monkeypatch.chdir(elsewhere)
    assert FleetAccess.here().record is None

    read = f'. "{folder.settings_file}" && env'
    shell = subprocess.run(["sh", "-c", read], capture_output=True, text=True, check=True).stdout
    for name, _, value in (line.partition("=") for line in shell.splitlines() if line.startswith("RATCHET_")):
        monkeypatch.setenv(name, value)

    assert FleetAccess.here().agents == ("coder",)
    settings = FleetSettings.read()
    assert (settings.logs_dir, settings.adapters_dir, settings.models_dir) == (
        home / "logs",
        home / "adapters",
        home / "models",
    )
    assert settings.index_dir is None


def test_commands_know_the_file_of_programs_that_a_fleet_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = FleetFolder.here()
    folder.root.mkdir()
    folder.write_record(started(FleetOptions(programs="/a/programs.toml"), {}))

    assert FleetAccess.here().programs == Path("/a/programs.toml")
    monkeypatch.setenv("RATCHET_PROGRAMS", "/another.toml")
    assert FleetAccess.here().programs == Path("/another.toml")


def test_whoever_finds_no_broker_in_a_folder_without_a_fleet_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RATCHET_AMQP_URL", raising=False)
    app = typer.Typer(cls=FaultsAsSentences)

    @app.command()
    def ask() -> None:
        raise unreachable("amqp://127.0.0.1:5672/", OSError())

    @app.command()
    def other() -> None: ...

    def error_of_ask() -> str:
        assert app(["ask"], standalone_mode=False) == 3
        return capsys.readouterr().err

    assert FROM_ELSEWHERE in error_of_ask()
    monkeypatch.setenv("RATCHET_AMQP_URL", "amqp://127.0.0.1:1/")
    assert FROM_ELSEWHERE not in error_of_ask()
