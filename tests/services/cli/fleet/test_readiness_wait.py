"""Waiting for a fleet: what is shown, and when it is given up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from ratchet.service.errors import TimedOut
from services.cli.fleet.readiness import Waiting, last_words
from services.cli.fleet.service_http import metrics_text, readiness
from services.cli.fleet.supervisord import ProcessState, Program
from services.cli.terminal import CommandError


class Service(BaseHTTPRequestHandler):
    """Not ready at the first look, ready from then on."""

    reason = "loading the model"

    def do_GET(self) -> None:
        asked = self.server.asked = getattr(self.server, "asked", 0) + 1  # type: ignore[attr-defined]
        ready = asked > 1
        self.send_response(200 if ready else 503)
        self.end_headers()
        self.wfile.write(json.dumps({"ready": ready, "reason": None if ready else self.reason}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


class WithoutBroker(Service):
    reason = "no connection to the broker at amqp://127.0.0.1:1 for consuming since 2 s: refused"


@pytest.fixture
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), getattr(request, "param", Service))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def program(port: int | None) -> Program:
    return Program("agent", ("true",), http_port=port)


def running(pid: int = 5, state: str = "RUNNING") -> dict[str, ProcessState]:
    return {"agent": ProcessState("agent", state, pid, "")}


def test_a_service_s_own_reason_is_shown_until_it_is_ready(port: int, tmp_path: Path) -> None:
    shown: list[dict[str, str]] = []

    Waiting((program(port),), tmp_path, running, lambda standing: shown.append(dict(standing))).until_ready(10)

    assert shown == [{"agent": "loading the model"}, {"agent": "ready"}]


@pytest.mark.parametrize("port", [WithoutBroker], indirect=True)
def test_a_broker_is_ready_once_it_answers_and_services_wait_for_it_until_then(port: int, tmp_path: Path) -> None:
    shown: list[dict[str, str]] = []
    answers = iter([False, True])
    programs = (Program("broker", ("true",), http_port=None), program(port))
    states = running() | {"broker": ProcessState("broker", "RUNNING", 6, "")}

    waiting = Waiting(programs, tmp_path, lambda: states, lambda seen: shown.append(dict(seen)), lambda: next(answers))
    waiting.until_ready(10)

    assert shown == [{"broker": "starting", "agent": "waits for the broker"}, {"broker": "ready", "agent": "ready"}]


def test_a_program_that_keeps_ending_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "agent.log").write_text('{"level": "ERROR", "message": "no such model"}\n{"level": "INFO"}\n')
    pids = iter(range(1, 100))
    waiting = Waiting((program(1),), tmp_path, lambda: running(next(pids)), lambda _: None)

    with pytest.raises(CommandError, match="keeps ending: no such model"):
        waiting.until_ready(30)


def test_a_program_that_says_that_another_start_is_hopeless_gets_none(tmp_path: Path) -> None:
    (tmp_path / "agent.log").write_text('{"level": "ERROR", "message": "no judge is named", "hopeless": true}\n')
    states = iter([running(7), running(0, "BACKOFF")])
    waiting = Waiting((program(1),), tmp_path, lambda: next(states), lambda _: None)

    with pytest.raises(CommandError, match="agent can't start: no judge is named"):
        waiting.until_ready(30)


def test_what_is_not_ready_in_time_is_named_with_its_reason(tmp_path: Path) -> None:
    waiting = Waiting((program(1),), tmp_path, running, lambda _: None)

    with pytest.raises(TimedOut, match="agent: does not answer yet"):
        waiting.until_ready(0.1)


def test_the_last_words_are_the_last_line_where_no_error_was_logged(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert last_words(log) == "it wrote no log"
    log.write_text("Traceback\nModuleNotFoundError: No module named 'torch'\n\n")
    assert last_words(log) == "ModuleNotFoundError: No module named 'torch'"


def test_who_does_not_answer_has_no_metrics_and_is_not_ready() -> None:
    assert metrics_text(1) is None
    assert not readiness(1).ready
