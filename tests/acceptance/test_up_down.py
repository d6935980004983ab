"""`ratchet up` and `ratchet down`: a broker and a fleet of its own, as a newcomer starts them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ratchet.runtime.processes import PROCESSES
from services.cli.fleet.local_broker import server_folder
from services.cli.fleet.plan import DISTRIBUTION_OFFSET, MAPPER_OFFSET
from services.cli.fleet.ports import is_taken
from tests.acceptance.ratchet_command import Ratchet, StartingRatchet
from tests.private_broker import free_port
from tests.waiting import wait_until

PORTS = [process.local_port for process in PROCESSES.values()]
FIRST_AGENT = PROCESSES["agent"].local_port

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(server_folder() is None, reason="RabbitMQ is not installed here, so none can be started"),
]


def free_base() -> int:
    """Whose ports for the services are all free."""
    while True:
        base = free_port()
        if not any(is_taken(base + offset) for offset in (FIRST_AGENT + 1, *PORTS)):
            return base


def free_amqp_port() -> int:
    while True:
        port = free_port() // 2
        if not any(is_taken(port + offset) for offset in (0, MAPPER_OFFSET, DISTRIBUTION_OFFSET)):
            return port


@pytest.fixture(scope="module")
def options() -> list[str]:
    ports = ["--port-base", str(free_base()), "--amqp-port", str(free_amqp_port())]
    return ["--engine", "echo", "--scorer", "verifier:exact", *ports]


@pytest.fixture(scope="module")
def ratchet(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ratchet]:
    """In a folder where a fleet is up; it is down afterwards, and no process of it is left."""
    ratchet = StartingRatchet(tmp_path_factory.mktemp("up"), {"RATCHET_NAMESPACE": "blue."})
    try:
        ran = ratchet("up", *options)
        assert ran.code == 0, ran.err
        yield ratchet
    finally:
        ran = ratchet("down")
    assert ran.code == 0
    assert processes_of(ratchet.folder) == []


def processes_of(folder: Path) -> list[str]:
    mark = str(folder / ".ratchet")
    return [process.name() for process in psutil.process_iter() if is_of(process, mark)]


def is_of(process: psutil.Process, mark: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get("RATCHET_FLEET") == mark
    except psutil.Error:
        return False


def pid_of(ratchet: Ratchet, name: str) -> int:
    return next(int(s["pid"]) for s in ratchet("status", "--json").json["services"] if s["name"] == name)


def test_it_answers_and_all_is_healthy(ratchet: Ratchet) -> None:
    assert ratchet("submit", "hello", "--reference", "hello").out == "hello\n"
    status = ratchet("status", "--json")
    assert (status.code, status.json["healthy"]) == (0, True)
    names = [service["name"] for service in status.json["services"]]
    assert names == ["broker", "orchestrator", "agent-small", "scorer"]
    assert (ratchet.folder / "logs" / "agent_interactions.jsonl").exists()


def test_watch_sees_the_answered_tasks(ratchet: Ratchet) -> None:
    ratchet("submit", "one more", "--reference", "one more")

    figures = ratchet("watch", "--once", "--json", "--interval", "0.2").json

    assert figures["answered"] >= 1
    assert figures["scores"][0]["mean"] > 0
    assert figures["trouble"] == []


def test_a_second_up_says_so_and_changes_nothing(ratchet: Ratchet, options: list[str]) -> None:
    before = pid_of(ratchet, "orchestrator")

    again = ratchet("up", *options)

    assert again.code == 0
    assert "already up" in again.err
    assert "(queue of tasks: blue.tasks, of results: blue.results)" in " ".join(again.out.split())
    assert pid_of(ratchet, "orchestrator") == before


def test_other_options_are_refused_while_it_is_up(ratchet: Ratchet, options: list[str]) -> None:
    ran = ratchet("up", *options, "--replicas", "2")

    assert ran.code == 1
    assert "ratchet down" in ran.err


def test_a_killed_service_is_started_again(ratchet: Ratchet) -> None:
    victim = pid_of(ratchet, "agent-small")

    os.kill(victim, signal.SIGKILL)

    assert ratchet("submit", "after the kill", "--timeout", "60").out == "after the kill\n"
    wait_until(lambda: ratchet("status").code == 0, "all healthy")
    assert pid_of(ratchet, "agent-small") != victim


def test_a_killed_broker_is_started_again_and_kept_its_queues(ratchet: Ratchet) -> None:
    (beam,) = [
        process
        for process in psutil.Process(pid_of(ratchet, "broker")).children(recursive=True)
        if process.name() == "beam.smp"
    ]

    beam.kill()

    wait_until(lambda: ratchet("status").code == 0, "all healthy")
    assert ratchet("submit", "the broker is back").out == "the broker is back\n"


def test_another_fleet_on_the_same_ports_is_refused(ratchet: Ratchet, options: list[str], tmp_path: Path) -> None:
    ran = Ratchet(tmp_path)("up", *options)

    assert ran.code == 1
    assert "(for orchestrator)" in ran.err
    assert "pid" in ran.err
    wait_until(lambda: ratchet("status").code == 0, "all healthy")


def test_a_fleet_whose_supervisor_was_killed_is_put_in_order(ratchet: Ratchet, options: list[str]) -> None:
    supervisor = next(
        process.pid
        for process in psutil.process_iter()
        if is_of(process, str(ratchet.folder / ".ratchet")) and "supervisor.supervisord" in process.cmdline()
    )
    os.kill(supervisor, signal.SIGKILL)
    assert ratchet("status").code == 1

    again = ratchet("up", *options)

    assert again.code == 0, again.err
    assert "left behind" in again.err
    assert ratchet("submit", "in order again").out == "in order again\n"


def test_a_service_that_can_t_start_is_reported_with_its_reason_and_nothing_is_left(
    amqp_url: str, tmp_path: Path
) -> None:
    ratchet = Ratchet(tmp_path, {"RATCHET_AMQP_URL": amqp_url, "RATCHET_NAMESPACE": "never-up."})
    base = str(free_base())

    ports = ("--port-base", base)

    ran = ratchet("up", "--engine", "scripted", "--scorer", "verifier:exact", "--no-trainer", *ports)

    assert ran.code == 1
    assert "agent-small can't start" in ran.err
    assert "RATCHET_AGENT_SCRIPT is not set" in ran.err
    assert processes_of(tmp_path) == []
