"""`ratchet tools` as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.ratchet_command import ForkedRatchet


@pytest.fixture
def ratchet(tmp_path: Path) -> ForkedRatchet:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("hello")
    return ForkedRatchet(tmp_path)


WHERE = ("--root", "work", "--audit", "audit")


def test_operations_are_listed_called_and_audited(ratchet: ForkedRatchet, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('[operations]\nhttp_get = "deny"\n')
    listed = ratchet("tools", "list", "--json", "--policy", "policy.toml").json
    assert len(listed) == 55
    assert {one["name"]: one["policy"] for one in listed}["http_get"] == "deny"

    anchored = (*WHERE, "--anchor", "anchor.json")
    assert ratchet("tools", "call", "file_read", '{"path": "a.txt"}', *anchored).json["text"] == "hello"
    refused = ratchet("tools", "call", "file_remove", '{"path": "a.txt"}', *anchored)
    assert (refused.code, refused.json["error"]) == (1, "policy")
    assert ratchet("tools", "call", "file_remove", '{"path": "a.txt"}', *anchored, "--yes").code == 0
    assert not (tmp_path / "work" / "a.txt").exists()

    whole = ratchet("tools", "audit", "verify", *anchored, "--json")
    assert (whole.code, whole.json[0]["lines"], whole.json[0]["anchored"]) == (0, 5, True)

    file = tmp_path / "audit" / "tools" / "audit.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    cut = ratchet("tools", "audit", "verify", *anchored)
    assert cut.code == 1 and "cut off" in cut.err
    assert ratchet("tools", "audit", "verify", *WHERE).code == 0, "without the anchor nobody can tell"


def test_what_makes_no_sense_is_said(ratchet: ForkedRatchet) -> None:
    assert ratchet("tools", "audit", "verify", "--audit", "none").code == 2
    inside = ratchet("tools", "call", "file_list", "--root", "work", "--audit", "work/audit")
    assert inside.code == 2 and "would lie in the workspace" in inside.err
