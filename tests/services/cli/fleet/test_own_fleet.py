"""The demo's folder is made anew each time, and its fleet hears of no setting but the demo's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from services.cli.fleet.own_fleet import FleetPlace, only
from tests.ratchet.adapters.making_adapters import published


def test_nothing_of_an_earlier_demo_is_left(tmp_path: Path) -> None:
    place = FleetPlace(tmp_path / "demo")
    place.make_anew("")
    published(place.adapters)
    place.logs.mkdir()

    place.make_anew("")

    assert sorted(path.name for path in place.root.iterdir()) == ["adapters", "env"]
    assert list(place.adapters.iterdir()) == []


def test_the_settings_file_points_a_shell_at_the_demo(tmp_path: Path) -> None:
    place = FleetPlace(tmp_path / "it's here")
    place.make_anew("demo-1.")

    shell = f'. "{place.settings_file}" && echo "$RATCHET_LOGS_DIR|$RATCHET_ADAPTERS_DIR|$RATCHET_NAMESPACE"'
    printed = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout

    assert printed == f"{place.logs}|{place.adapters}|demo-1.\n"


def test_only_the_broker_and_the_log_level_come_in_from_outside() -> None:
    environment = {"PATH": "/bin", "RATCHET_AMQP_URL": "amqp://x/", "RATCHET_LOGS_DIR": "logs", "RATCHET_SAMPLES": "3"}
    before = dict(environment)

    with only({"RATCHET_LOGS_DIR": "demo/logs"}, environment):
        assert environment == {"PATH": "/bin", "RATCHET_AMQP_URL": "amqp://x/", "RATCHET_LOGS_DIR": "demo/logs"}
    assert environment == before


def test_settings_come_back_after_a_failure() -> None:
    environment = {"RATCHET_SAMPLES": "3"}

    with pytest.raises(ValueError, match="failed"), only({}, environment):
        raise ValueError("failed")

    assert environment == {"RATCHET_SAMPLES": "3"}
