"""Remembers the answers given last, so that a Work delivered again gets the same answer instead of a second one.

In memory: after a restart the work is done again, and downstream the deterministic message ids take care of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from ratchet.concurrency.keyed_lock import KeyedLock

KEPT_BYTES = 16 * 1024 * 1024
"""Only what is not acknowledged can come again: a few hundred answers at most."""


class RecentAnswers:
    """A delivery that comes again while its answer is still being made waits for that one."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._made: OrderedDict[str, bytes] = OrderedDict()
        self._turns = KeyedLock()

    async def answer(self, key: str, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The answer of that key, made by `make` unless it was before. A failure is raised and not remembered."""
        async with self._turns.of(key):
            if (made := self._made.get(key)) is None:
                made = await make()
                self._keep(key, made)
            return made

    def _keep(self, key: str, made: bytes) -> None:
        self._made[key] = made
        self._bytes += len(made)
        while self._bytes > self._kept_bytes:
            self._bytes -= len(self._made.popitem(last=False)[1])
