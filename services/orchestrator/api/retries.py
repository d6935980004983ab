"""Which requests a client may be trying again: those that were begun and whose answer it never got whole.

OpenAI's clients say that a request is a retry (`x-stainless-retry-count`), not of which one: the same caller sent the
same body before. In memory: who needs a retry to hold through a restart of the orchestrator sends an Idempotency-Key.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

MOST = 10_000
"""Unfinished requests that are remembered; beyond, the oldest are forgotten."""


class Retries:
    def __init__(self) -> None:
        self._unfinished: OrderedDict[str, str] = OrderedDict()
        """Task id → what was asked, and by whom; in the order they began."""

    def task_of(self, caller: str, body: bytes) -> str | None:
        """The task of the oldest unfinished request that was the same; it now belongs to whoever asks."""
        asked = _sum(caller, body)
        return next((task_id for task_id, one in self._unfinished.items() if one == asked), None)

    def begun(self, task_id: str, caller: str, body: bytes) -> None:
        self._unfinished[task_id] = _sum(caller, body)
        self._unfinished.move_to_end(task_id)
        while len(self._unfinished) > MOST:
            self._unfinished.popitem(last=False)

    def finished(self, task_id: str) -> None:
        """The client has the answer."""
        self._unfinished.pop(task_id, None)


def _sum(caller: str, body: bytes) -> str:
    return hashlib.sha256(caller.encode() + b"\n" + body).hexdigest()
