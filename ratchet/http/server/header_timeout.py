"""HTTP/1.1 as uvicorn speaks it, but a request's head (its line and headers) must come in within a time.

Without it whoever reaches the port could hold open files without end, without a token, by saying nothing. Bodies have
their own bound (limits.py), and a connection that is kept between two requests has uvicorn's.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_S = 20.0


class HeaderTimeoutProtocol(H11Protocol):
    """Closes a connection that for `head_s` seconds, or at most twice that, has brought no whole head."""

    head_s = HEAD_S
    _check: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look_later(was_idle=True)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._check is not None:
            self._check.cancel()

    def _look_later(self, *, was_idle: bool) -> None:
        self._check = self.loop.call_later(self.head_s, self._close_if_idle, was_idle, self.cycle)

    def _close_if_idle(self, was_idle: bool, last: RequestResponseCycle | None) -> None:
        is_idle = self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE
        if was_idle and is_idle and self.cycle is last:
            self.transport.close()
        else:
            self._look_later(was_idle=is_idle)
