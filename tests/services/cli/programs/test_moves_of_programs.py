"""`ratchet programs` as an operator uses it to say which program answers, and to have another one tried."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ratchet.adapters.agent_view import programs_standing
from ratchet.adapters.registry import RegistryStore
from ratchet.service.settings import FleetSettings
from schemas.records.decision import SettleProgram
from schemas.records.registry import Registry
from services.cli.fleet.folder import FleetFolder
from services.cli.fleet.options import FleetOptions
from services.cli.status import program_rows
from tests.acceptance.ratchet_command import ForkedRatchet as Ratchet
from tests.ratchet.adapters.making_decisions import decided, draft
from tests.ratchet.adapters.test_program_moves import starts
from tests.services.cli.started import started


@pytest.fixture
def orchestrator() -> Iterator[int]:
    """Its port; it has heard one runner."""
    heard = programs_standing(Registry(), "small", [{"old": "0" * 64, "new": "1" * 64}]).model_dump_json().encode()

    class Heard(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/v1/programs/small" else 404)
            self.end_headers()
            self.wfile.write(heard)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with HTTPServer(("127.0.0.1", 0), Heard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_name_that_no_runner_has_is_refused_and_where_none_was_heard_that_is_said(
    tmp_path: Path, orchestrator: int
) -> None:
    ratchet, reason = Ratchet(tmp_path, {"RATCHET_STATE_DIR": str(tmp_path)}), ("--reason", "at night")

    # given nobody knows what runners have
    unheard = ratchet("programs", "promote", "odl", *reason)
    assert (unheard.code, "No runner was heard from here" in unheard.err) == (0, True)

    # when the orchestrator has heard one
    FleetFolder(tmp_path).write_record(started(FleetOptions(), {"orchestrator": orchestrator}))
    # then what it does not have is refused, what it has is not, and one goes back to whatever was before
    for move in ("promote", "try"):
        refused = ratchet("programs", move, "nwe", *reason)
        assert refused.code == 2
        assert "no runner has a program 'nwe' for this agent; they have new, old" in refused.err
    taken = ratchet("programs", "promote", "old", *reason)
    assert (taken.code, taken.err) == (0, "")
    assert "odl answers by default" in ratchet("programs", "rollback", "old", *reason).out


def test_moves_by_hand_are_decisions_with_a_name_and_a_reason(tmp_path: Path) -> None:
    ratchet = Ratchet(tmp_path, {"USER": "ann", "LOGNAME": "ann"})
    store = RegistryStore(tmp_path / "adapters")

    # given nothing was decided yet
    assert "small · samples are dealt to all programs" in ratchet("programs", "standing").out
    too_early = ratchet("programs", "try", "new", "--reason", "it thinks twice")
    assert (too_early.code, "say which one does, with `ratchet programs promote`" in too_early.err) == (1, True)

    # when an operator says which one answers, and has another one tried
    assert "old answers by default" in ratchet("programs", "promote", "old", "--reason", "it is what there is").out
    decided(store, SettleProgram(program="old"))
    asked = ratchet("programs", "try", "new", "--reason", "it thinks twice")
    assert "old answers by default · new waits to be tried" in asked.out
    assert ratchet("programs", "standing", "--json").json[0]["asked"] == "new"
    store.change(store.read().revision, draft(starts()))

    # then all of it is seen where experiments, adapters and the fleet are looked at
    assert "new / old" in ratchet("experiment", "list").out
    assert "program old" in ratchet("adapters", "list").out
    settings = FleetSettings(adapters_dir=store.folder)
    assert program_rows(settings) == [{"agent_id": "small", "program": "old", "tried": "new"}]
    ambiguous = ratchet("programs", "rollback", "--reason", "which?")
    assert (ambiguous.code, "new is tried and old answers by default" in ambiguous.err) == (2, True)
    back = ratchet("programs", "rollback", "new", "--reason", "not today", "--json").json
    assert [(one["name"], one["state"]) for one in back["items"]] == [("old", "stable"), ("new", "rolled_back")]
    newest = ratchet("adapters", "history", "-n", "1", "--json").json
    assert [(one["who"], one["move"]["kind"], one["reason"]) for one in newest] == [
        ("operator:ann", "roll_back_program", "not today")
    ]
    history = ratchet("adapters", "history").out
    assert "try_program" in history and " new " in history
