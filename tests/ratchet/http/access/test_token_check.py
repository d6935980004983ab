"""Keys rotate and tokens are revoked while the service runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ratchet.http.access.guard import CHECK_EVERY_S, TokenCheck
from ratchet.http.access.keys import KeyFolder
from ratchet.http.access.roles import Role
from ratchet.http.access.tokens import LEEWAY_S, TokenRefused, issue
from ratchet.service.errors import SettingsError
from tests.ratchet.http.access.tokens_for_tests import OURS, Mint


class Clock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def tick(self) -> None:
        """Time for the next look at the files."""
        self.now += CHECK_EVERY_S


@pytest.fixture
def mint(tmp_path: Path) -> Mint:
    return Mint(tmp_path / "keys")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(mint: Mint, clock: Clock) -> TokenCheck:
    return TokenCheck(mint.keys.jwks, **OURS, monotonic=clock)


async def test_a_rotation_needs_no_restart_and_no_wait_and_ends_no_token(
    mint: Mint, tokens: TokenCheck, clock: Clock
) -> None:
    old = mint.good(Role.VIEWER, "old")
    assert (await tokens.caller(old)).name == "old"

    mint.keys.make()
    new = mint.good(Role.OPERATOR, "new")
    assert [(await tokens.caller(token)).name for token in (old, new)] == ["old", "new"]

    mint.keys.retire()
    clock.tick()
    assert (await tokens.caller(new)).name == "new"
    with pytest.raises(TokenRefused, match="not known"):
        await tokens.caller(old)


async def test_a_revoked_token_is_refused_at_the_next_look(mint: Mint, tokens: TokenCheck, clock: Clock) -> None:
    kept, lost = mint.good(Role.OPERATOR, "kept"), mint.good(Role.OPERATOR, "lost")
    revoked = await tokens.caller(lost)

    mint.keys.revoke(revoked.token_id or "", 2**40)
    clock.tick()

    with pytest.raises(TokenRefused, match="revoked"):
        await tokens.caller(lost)
    assert (await tokens.caller(kept)).name == "kept"


async def test_a_token_that_was_taken_is_refused_once_it_has_expired(mint: Mint) -> None:
    now = Clock(time.time())
    tokens = TokenCheck(mint.keys.jwks, **OURS, clock=now)
    token = mint.forged(mint.claims(iat=int(now()) - 100, exp=int(now()) + 100))
    now.now += 100 + LEEWAY_S - 2
    assert (await tokens.caller(token)).name == "somebody"

    now.now += 2

    with pytest.raises(TokenRefused, match="expired"):
        await tokens.caller(token)


@pytest.mark.parametrize("broken", [b"", b"half a fi", b'{"keys": []}'])
async def test_files_that_can_t_be_read_leave_the_old_ones_in_force(
    mint: Mint, tokens: TokenCheck, clock: Clock, broken: bytes
) -> None:
    token = mint.good(Role.VIEWER, "somebody")
    mint.keys.jwks.write_bytes(broken)
    clock.tick()

    assert (await tokens.caller(token)).name == "somebody"

    mint.keys.jwks.unlink()
    clock.tick()
    assert (await tokens.caller(token)).name == "somebody"


async def test_a_folder_is_as_good_as_its_jwks(mint: Mint) -> None:
    assert (await TokenCheck(mint.keys.folder, **OURS).caller(mint.good(Role.VIEWER, "ci"))).name == "ci"


def test_without_keys_there_is_no_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="RATCHET_API_PUBLIC_KEYS"):
        TokenCheck(tmp_path / "none.json", **OURS)


def test_only_its_owner_reads_the_signing_key(mint: Mint) -> None:
    signing = mint.keys.folder / "signing-key.json"

    assert signing.stat().st_mode & 0o777 == 0o600
    mint.keys.make()
    assert signing.stat().st_mode & 0o777 == 0o600
    assert b'"d"' not in mint.keys.jwks.read_bytes()


def test_revoked_ids_are_forgotten_when_their_tokens_have_expired(mint: Mint) -> None:
    mint.keys.revoke("old", 1)
    mint.keys.revoke("new", 2**40)

    assert mint.keys.revoked.read_text() == f"new {2**40}\n"


def test_a_signing_key_that_is_none_is_named(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path)
    with pytest.raises(SettingsError, match="no signing key"):
        folder.signing_key()

    (tmp_path / "signing-key.json").write_text("{}")
    with pytest.raises(SettingsError, match=r"signing-key\.json"):
        issue(folder.signing_key(), "ci", Role.VIEWER, 60, **OURS)
