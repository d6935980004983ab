"""`ratchet token` and `ratchet audit`, as a person types them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ratchet.http.access.audit import AuditLog
from tests.acceptance.ratchet_command import ForkedRatchet as Ratchet


@pytest.fixture
def ratchet(tmp_path: Path) -> Ratchet:
    return Ratchet(tmp_path, {})


def test_from_no_keys_to_a_revoked_token(ratchet: Ratchet, tmp_path: Path) -> None:
    none = ratchet("token", "issue", "--role", "viewer", "--name", "ci")
    assert none.code == 2
    assert "ratchet token keys" in none.err

    made = json.loads(ratchet("token", "keys", "--json").out)
    again = json.loads(ratchet("token", "keys", "--json").out)
    assert (again["made"], again["key_ids"]) == (None, [made["made"]])

    token = ratchet("token", "issue", "--role", "viewer", "--name", "ci", "--ttl", "90s").out.strip()
    checked = json.loads(ratchet("token", "check", token, "--json").out)
    assert (checked["sub"], checked["role"], checked["exp"] - checked["iat"]) == ("ci", "viewer", 90)

    rotated = json.loads(ratchet("token", "keys", "--rotate", "--json").out)
    assert (len(rotated["key_ids"]), rotated["key_ids"][1]) == (2, made["made"])
    assert ratchet("token", "check", token).code == 0

    assert ratchet("token", "revoke", token).code == 0
    revoked = ratchet("token", "check", token)
    assert (revoked.code, "revoked" in revoked.err) == (1, True)

    retired = json.loads(ratchet("token", "keys", "--retire", "--json").out)
    assert retired["retired"] == [made["made"]]
    assert "not known" in ratchet("token", "check", token).err
    assert token not in "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--role", "god", "--name", "ci"), "viewer, submitter, operator, admin, runner"),
        (("--role", "viewer", "--name", "a b"), "letters"),
        (("--role", "viewer", "--name", "ci", "--ttl", "2 days"), "30m or 8h"),
        (("--role", "viewer", "--name", "ci", "--ttl", "48h"), "at most 24 h"),
    ],
)
def test_what_can_t_be_issued_is_said_in_a_sentence(ratchet: Ratchet, options: tuple[str, ...], said: str) -> None:
    ratchet("token", "keys")

    ran = ratchet("token", "issue", *options)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_the_audit_is_shown_and_what_was_touched_is_named(ratchet: Ratchet, tmp_path: Path) -> None:
    assert ratchet("audit", "verify").code == 2

    async def write() -> None:
        audit = AuditLog(tmp_path / "logs/audit", "trainer")
        for who in ("anna", "ben", "anna"):
            await audit.record({"event": "refused", "who": who, "method": "GET", "path": "/v1/runs", "status": 403})
        await audit.close()

    asyncio.run(write())

    whole = ratchet("audit", "verify", "--json")
    (one,) = json.loads(whole.out)
    assert (whole.code, one["audit"], one["lines"]) == (0, "trainer", 3)
    shown = json.loads(ratchet("audit", "show", "--who", "anna", "--json").out)
    assert [line["sequence"] for line in shown] == [1, 3]
    assert "ben  GET /v1/runs" in ratchet("audit", "show").out

    file = tmp_path / "logs/audit/trainer/audit.jsonl"
    file.write_text(file.read_text().replace("ben", "eve"))
    touched = ratchet("audit", "verify")
    assert touched.code == 1
    assert "was changed after it was written" in touched.err
