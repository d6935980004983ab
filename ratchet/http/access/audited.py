"""Audits refusals as they leave the service, and changes before they are made and when they are done.

A change that can't be audited is not made. Work (tasks, chat, feedback) has one line, with how it ended: the fleet's
own log has it whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ratchet.http.access.audit import AuditLog
from ratchet.http.access.matrix import AccessRule
from ratchet.http.access.roles import Caller
from ratchet.http.operation import Effect
from ratchet.http.problem import RETRY_AFTER_S, Problem, status_of
from ratchet.service.errors import JournalError
from ratchet.service.telemetry import without_tokens

WINDOW_S = 60.0
MOST_CALLERS = 100

Entry = dict[str, Any]
Key = tuple[str, int]
OTHERS: Key = ("others", 0)


@dataclass(slots=True)
class _Window:
    first: Entry
    more: int = 0


class Refusals:
    """Refusals for the audit, so that whoever is refused again and again fills no disk. Use it from one event loop.

    The first refusal of a caller is a line (`note` takes it); further ones within a minute are counted, and one line
    tells how many. At most a hundred callers are told apart at a time; the rest count together.
    """

    def __init__(self, note: Callable[[Entry], None], *, window_s: float = WINDOW_S) -> None:
        self._note = note
        self._window_s = window_s
        self._windows: dict[Key, _Window] = {}

    def count_refusal(self, entry: Entry) -> None:
        """`entry` has `who` or, without a token that counts, `from`; and `status`."""
        key = (str(entry.get("who") or entry.get("from")), int(entry["status"]))
        if key not in self._windows and len(self._windows) >= MOST_CALLERS:
            key = OTHERS
        if window := self._windows.get(key):
            window.more += 1
            return
        self._windows[key] = _Window(entry)
        self._note({"event": "refused", **entry})
        asyncio.get_running_loop().call_later(self._window_s, self._end, key)

    def close(self) -> None:
        """Tell what was only counted so far."""
        for key in list(self._windows):
            self._end(key)

    def _end(self, key: Key) -> None:
        window = self._windows.pop(key, None)
        if window is not None and window.more:
            told = {"who": "others"} if key == OTHERS else window.first
            self._note({"event": "refused_again", **told, "times": window.more})


REFUSED = frozenset({401, 403, 429})
LONGEST_PATH = 300


class AuditRefusals:
    """Outside of the guard."""

    def __init__(self, app: ASGIApp, refusals: Refusals) -> None:
        self._app = app
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(scope, message["status"])
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception as error:
            self._note(scope, status_of(error))
            raise

    def _note(self, scope: Scope, status: int) -> None:
        if status in REFUSED:
            self._refusals.count_refusal({**_who(scope), "status": status})


class AuditChanges:
    """Audits what the guard let in: `state["rule"]` says what the route does."""

    def __init__(self, app: ASGIApp, audit: AuditLog) -> None:
        self._app = app
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rule: AccessRule | None = scope["state"].get("rule") if scope["type"] == "http" else None
        if rule is None or rule.operation.effect is Effect.READS:
            await self._app(scope, receive, send)
            return
        begun = await self._begin(scope, rule)

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._end(scope, rule, begun, message["status"])
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except asyncio.CancelledError:  # the caller's deadline passed: what was submitted goes on
            self._end(scope, rule, begun, 504)
            raise
        except Exception as error:
            self._end(scope, rule, begun, status_of(error))
            raise

    async def _begin(self, scope: Scope, rule: AccessRule) -> int | None:
        """The number of the line that says what is about to be changed; None for work.

        While the audit is in trouble, work is told beforehand too: the first that can be ends the trouble.
        """
        if rule.operation.effect is Effect.WORKS and self._audit.trouble() is None:
            return None
        try:
            return await self._audit.record({"event": "change", **_who(scope), "concerns": _concerns(scope, rule)})
        except JournalError as error:
            raise _not_audited(str(error)) from None

    def _end(self, scope: Scope, rule: AccessRule, begun: int | None, status: int) -> None:
        event: dict[str, Any] = {"event": "work"} if begun is None else {"event": "done", "change": begun}
        self._audit.note({**event, **_who(scope), "concerns": _concerns(scope, rule), "status": status})


def _who(scope: Scope) -> dict[str, Any]:
    caller: Caller | None = scope.get("state", {}).get("caller")
    client = scope.get("client")
    return {
        "who": caller.name if caller else None,
        "role": caller.role.value if caller else None,
        "token_id": caller.token_id if caller else None,
        "from": _plain(client[0]) if client else None,
        "method": scope["method"],
        "path": _plain(scope["path"]),
    }


def _concerns(scope: Scope, rule: AccessRule) -> dict[str, str]:
    """Return what the request is about: the variables of the path, and what the route says
    (`request.state.concerns`)."""
    match = rule.pattern.match(scope["path"])
    named = (match.groupdict() if match else {}) | scope["state"].get("concerns", {})
    return {name: _plain(str(value)) for name, value in named.items()}


def _plain(text: str) -> str:
    """Printable, bounded, without a token that was pasted into a path."""
    shown = without_tokens(text)[:LONGEST_PATH].encode("utf-8", "replace").decode()
    return "".join(one if one.isprintable() else "?" for one in shown)


def _not_audited(reason: str) -> Problem:
    detail = f"nothing was changed, because it could not be audited: {reason}"
    return Problem(503, "Can't be audited", detail, "audit", {"Retry-After": str(RETRY_AFTER_S)})
