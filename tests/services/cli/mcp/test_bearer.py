"""The token that `ratchet mcp` shows."""

from __future__ import annotations

from pathlib import Path

import httpx
import jwt
import pytest

from ratchet.http.access.roles import Role
from services.cli.fleet.api_client import Bearer, Token
from services.cli.terminal import CommandError


def shown(token: Token) -> str | None:
    request = httpx.Request("GET", "http://127.0.0.1/")
    next(Bearer(token).auth_flow(request))
    return request.headers.get("authorization")


def test_a_token_file_is_read_at_each_call(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = Token(file=file)
    file.write_text("one\n")
    first = shown(token)
    file.write_text("two\n")

    assert (first, shown(token)) == ("Bearer one", "Bearer two")


def test_without_a_token_nothing_is_shown() -> None:
    assert shown(Token()) is None
    assert shown(Token("abc")) == "Bearer abc"


def test_a_token_file_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"token file .*gone can't be read: No such file"):
        shown(Token(file=tmp_path / "gone"))
    assert Token(file=tmp_path / "gone").role() is None


def test_the_role_is_read_from_the_token_for_showing_only() -> None:
    claimed = jwt.encode({"role": "viewer"}, "not checked here, any key will do for this", algorithm="HS256")

    assert Token(claimed).role() is Role.VIEWER
    assert Token("no token").role() is None
    assert Token().role() is None
