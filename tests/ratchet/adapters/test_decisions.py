"""The ledger of decisions: whatever is changed in it is found, and named by its line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.adapters.decisions import DecisionLedger, Mark, chain_decision
from ratchet.files.hash_chain import canonical
from ratchet.service.errors import RegistryError
from tests.quick import rounds
from tests.ratchet.adapters.making_decisions import draft, register


def written(folder: Path, count: int = 4) -> DecisionLedger:
    ledger, mark = DecisionLedger(folder), Mark()
    for n in range(1, count + 1):
        mark = ledger.append(mark, draft(register(f"v1.0.{n}"), score=n / 7)).end
    return ledger


def test_what_was_appended_is_read_in_order_and_from_any_mark(tmp_path: Path) -> None:
    entries = list(written(tmp_path).read())
    assert [entry.decision.sequence for entry in entries] == [1, 2, 3, 4]
    assert entries[0].decision.evidence == {"score": 1 / 7}
    assert list(DecisionLedger(tmp_path).read(entries[1].end)) == entries[2:]


def test_a_decision_that_was_cut_off_from_outside_is_said_to_be(tmp_path: Path) -> None:
    ledger = written(tmp_path)
    *_, before, last = list(ledger.read())
    assert ledger.next_decision(before.end) == last.decision

    with ledger.path.open("r+b") as file:
        file.truncate(before.end.bytes)

    with pytest.raises(RegistryError, match="ends after decision 3: another program cut off"):
        ledger.next_decision(before.end)


def test_a_line_can_be_checked_without_this_program(tmp_path: Path) -> None:
    # the rule for other languages: sort the keys, leave out sha256, no spaces, and hash
    lines = written(tmp_path).path.read_text().splitlines()
    before = "0" * 64
    for line in map(json.loads, lines):
        claimed = line.pop("sha256")
        assert line["previous_sha256"] == before
        text = json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        before = hashlib.sha256(text.encode()).hexdigest()
        assert before == claimed


@settings(max_examples=rounds(150))
@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_any_changed_byte_is_found_and_its_line_named(
    tmp_path_factory: pytest.TempPathFactory, place: float, byte: int
) -> None:
    # given a ledger of four lines of which one byte is changed (the last newline apart: that is a torn line)
    ledger = written(tmp_path_factory.mktemp("ledger"))
    content = bytearray(ledger.path.read_bytes())
    at = int(place * (len(content) - 1))
    if content[at] == byte:
        return
    line = content[:at].count(b"\n") + 1
    content[at] = byte
    ledger.path.write_bytes(content)
    # then no reader takes it for what was written: it stops at that line, or passes it over as torn if it is the last
    good = []
    try:
        good.extend(entry.decision.sequence for entry in ledger.read())
    except RegistryError as error:
        assert f"line {line} " in str(error)
    assert good in ([], list(range(1, line)))


@pytest.mark.parametrize("change", ["removed", "swapped", "repeated"])
def test_lines_removed_swapped_or_repeated_are_found(tmp_path: Path, change: str) -> None:
    ledger = written(tmp_path)
    one, two, three, four = ledger.path.read_bytes().splitlines(keepends=True)
    changed = {"removed": [one, three, four], "swapped": [one, three, two, four], "repeated": [one, one, two, three]}
    ledger.path.write_bytes(b"".join(changed[change]))
    with pytest.raises(RegistryError, match=r"line 2 .* does not follow the line before it"):
        list(ledger.read())


def test_a_forger_must_forge_all_that_follows(tmp_path: Path) -> None:
    # given a first line that was replaced by another with a right sum
    ledger = written(tmp_path)
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    _, lines[0] = chain_decision(Mark(), draft(register("v1.0.1"), who="trainer", score=1.0))
    ledger.path.write_bytes(b"".join(lines))
    with pytest.raises(RegistryError, match=r"line 2 .* does not follow"):
        list(ledger.read())


def test_a_key_written_twice_is_a_change_too(tmp_path: Path) -> None:
    ledger = written(tmp_path, 1)
    ledger.path.write_bytes(ledger.path.read_bytes().replace(b'{"agent_id":', b'{"agent_id":"other","agent_id":', 1))
    with pytest.raises(RegistryError, match=r"line 1 .* was changed"):
        list(ledger.read())


def test_a_line_of_a_newer_program_is_not_called_forged(tmp_path: Path) -> None:
    # given a line with a kind of move this program does not know, properly chained
    ledger = written(tmp_path, 1)
    fields = json.loads(ledger.path.read_bytes())
    fields["move"] = {"kind": "split", "version": "v1.0.1"}
    del fields["sha256"]
    fields["sha256"] = hashlib.sha256(canonical(fields)).hexdigest()
    ledger.path.write_bytes(canonical(fields) + b"\n")
    with pytest.raises(RegistryError, match="another version of ratchet"):
        list(ledger.read())


def test_two_writers_at_once_are_noticed(tmp_path: Path) -> None:
    ledger = written(tmp_path, 2)
    first, _ = ledger.read()
    with pytest.raises(RegistryError, match="another program writes it"):
        ledger.append(first.end, draft(register("v1.0.9")))
