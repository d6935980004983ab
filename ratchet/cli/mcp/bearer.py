"""The API token that `ratchet mcp` shows to the services: given, or in a file that is read again at each call.

Tokens live for a day at most, and an MCP client runs for longer: whoever renews the token rewrites the file.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import httpx
import jwt

from ratchet.cli.terminal.exit_codes import CommandError
from ratchet.http.access.roles import Role


@dataclass(frozen=True, slots=True)
class Token:
    """`value`, or what is in `file`; neither for a fleet that asks for no tokens."""

    value: str | None = None
    file: Path | None = None

    def read(self) -> str | None:
        """Raises CommandError if the file can't be read."""
        if self.file is None:
            return self.value
        try:
            return self.file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise CommandError(f"the token file {self.file} can't be read: {error.strerror}") from None

    def role(self) -> Role | None:
        """What it says its role is, unchecked: good for showing the tools it will do for, and for nothing else."""
        try:
            claims = jwt.decode(self.read() or "", options={"verify_signature": False})
            return Role(claims["role"])
        except (CommandError, jwt.InvalidTokenError, KeyError, ValueError):
            return None


class Bearer(httpx.Auth):
    def __init__(self, token: Token) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if token := self._token.read():
            request.headers["Authorization"] = f"Bearer {token}"
        yield request
