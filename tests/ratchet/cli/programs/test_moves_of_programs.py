"""`ratchet programs` as an operator uses it to say which program answers, and to have another one tried."""

from __future__ import annotations

from pathlib import Path

from ratchet.adapters.registry import RegistryStore
from ratchet.cli.status import program_rows
from ratchet.service.settings import FleetSettings
from schemas.records.decision import SettleProgram
from tests.acceptance.ratchet_command import ForkedRatchet as Ratchet
from tests.ratchet.adapters.making_decisions import decided, draft
from tests.ratchet.adapters.test_program_moves import starts


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
    assert [(one.agent_id, one.program, one.tried) for one in program_rows(settings)] == [("small", "old", "new")]
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
