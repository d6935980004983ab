"""The checks of the doctor that judge a figure, and the whole of it on this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ratchet.bus.topology import fleet_topology
from services.cli.doctor import (
    Check,
    broker_checks,
    dead_letters_check,
    disk_space,
    machine_checks,
    memory,
    open_files,
    sound,
    unroutable_check,
)
from services.cli.fleet.readiness import QueueDepth


@pytest.mark.parametrize(("free", "level"), [(5e8, "fail"), (3e9, "warn"), (5e10, "ok")])
def test_little_disk_is_a_failure_before_the_broker_stops(free: float, level: str) -> None:
    assert disk_space(int(free), "logs").level == level


@pytest.mark.parametrize(("available", "level"), [(5e8, "fail"), (1.5e9, "warn"), (8e9, "ok")])
def test_memory(available: float, level: str) -> None:
    assert memory(int(available)).level == level


@pytest.mark.parametrize(("limit", "level"), [(256, "warn"), (1024, "ok"), (-1, "ok")])
def test_open_files(limit: int, level: str) -> None:
    assert open_files(limit).level == level


def test_dead_letters_are_a_warning_with_what_to_type() -> None:
    check = dead_letters_check([QueueDepth("tasks", 9, 1), QueueDepth("dead-letters", 2, 0)])

    assert (check.level, check.fix) == ("warn", "ratchet dead-letters list")


def test_unroutable_messages_are_a_warning_with_what_to_type() -> None:
    full, empty = ([QueueDepth("dead-letters", 9, 0), QueueDepth("unroutable", count, 0)] for count in (2, 0))

    assert unroutable_check(full).level == "warn"
    assert unroutable_check(full).fix == "ratchet dead-letters list --unroutable"
    assert unroutable_check(empty).level == "ok"


def test_every_check_that_is_not_ok_says_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        nowhere = tmp_path / "not" / "there"
        checks = list(machine_checks(nowhere, nowhere, nowhere, {port: "the scorer"}))

    assert [check.name for check in checks if check.level == "fail"] == ["ports"]
    assert all(check.fix for check in checks if check.level != "ok")


def test_warnings_do_not_make_a_machine_unsound() -> None:
    assert sound([Check("a", "ok", "-"), Check("b", "warn", "-", "fix")])
    assert not sound([Check("a", "ok", "-"), Check("b", "fail", "-", "fix")])


def test_a_broker_that_is_not_expected_may_be_away() -> None:
    url = "amqp://guest:guest@127.0.0.1:1/"
    levels = {
        expected: [check.level for check in broker_checks(url, "", fleet_topology(("small",)), expected=expected)][-1]
        for expected in (True, False)
    }

    assert levels == {True: "fail", False: "ok"}


@pytest.mark.broker
def test_a_real_broker_is_tried_out(amqp_url: str, namespace: str) -> None:
    checks = {c.name: c.level for c in broker_checks(amqp_url, namespace, fleet_topology(("small",)), expected=True)}

    assert [checks[name] for name in ("broker", "queues", "dead letters", "unroutable")] == ["ok"] * 4
