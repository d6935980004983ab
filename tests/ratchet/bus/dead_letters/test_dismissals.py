"""The file of dismissed letters: whole lines, whatever a crash or a terminal left in it, and a bound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ratchet.bus.amqp.frames import Properties
from ratchet.bus.dead_letters.dismissals import Dismissals
from ratchet.bus.dead_letters.letter import dead_letter
from ratchet.bus.dead_letters.queue import Held
from ratchet.service.errors import DiskFull


def held(body: bytes) -> Held:
    properties = Properties(headers={"x-ratchet-reason": "not JSON"}, message_id="m")
    return Held(dead_letter(properties, body, ""), 1, properties, body, None, None)


def test_a_line_that_a_crash_tore_costs_no_other(tmp_path: Path) -> None:
    dismissals, letters = Dismissals(tmp_path / "logs"), [held(b"one"), held(b"two"), held(b"\xff")]
    for number, letter in enumerate(letters):
        dismissals.keep(letter, "anna", "a typo")
        if number == 0:
            with dismissals.path.open("ab") as file:
                file.write(b'{"at": "2026')

    assert list(dismissals.places()) == [letter.letter.id for letter in letters]


def test_a_reason_that_is_no_utf_8_is_kept_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    dismissals, letter = Dismissals(tmp_path), held(b"one")

    dismissals.keep(letter, "anna", b"m\xfcll".decode("utf-8", "surrogateescape"))

    assert json.loads(dismissals.path.read_bytes())["reason"] == "m?ll"
    assert list(dismissals.places()) == [letter.letter.id]


def test_what_is_full_takes_no_more(tmp_path: Path) -> None:
    dismissals = Dismissals(tmp_path, most_bytes=100)

    with pytest.raises(DiskFull, match="move it elsewhere"):
        dismissals.keep(held(b"one"), "anna", "a typo")

    assert list(dismissals.places()) == []
