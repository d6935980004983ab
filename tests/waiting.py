"""How tests wait where no event says that it is time: `until` a condition holds (`wait_until` where there is no loop).

`settled` is time in which nothing should happen. A sleep anywhere else in the tests says on its line why it must be
one (`# real time: …`); tests/test_house.py holds that.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from typing import Any

TIMEOUT_S = 120.0
YIELDS = 10
"""Looks without a pause: work that waits for nothing outside the loop is done by then."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.05


async def until(condition: Callable[[], Any | Awaitable[Any]], what: str = "", timeout_s: float = TIMEOUT_S) -> Any:
    """Wait for a condition, which may be awaitable, and return its first true value. Raises AssertionError.

    The error says `what` was waited for: without it, it shows the condition's source.
    """
    try:
        async with asyncio.timeout(timeout_s):
            for pause_s in chain([0.0] * YIELDS, _pauses()):
                found = condition()
                if found := await found if inspect.isawaitable(found) else found:
                    return found
                await asyncio.sleep(pause_s)
    except TimeoutError:
        raise AssertionError(_sentence(condition, what, timeout_s)) from None


def wait_until(condition: Callable[[], Any], what: str = "", timeout_s: float = TIMEOUT_S) -> Any:
    """Wait like `until`, for a test that is no coroutine."""
    end = time.monotonic() + timeout_s
    for pause_s in _pauses():
        if found := condition():
            return found
        assert time.monotonic() < end, _sentence(condition, what, timeout_s)
        time.sleep(pause_s)


async def settled(seconds: float = 0.05) -> None:
    """Give time in which nothing should happen."""
    await asyncio.sleep(seconds)


def _pauses() -> Iterator[float]:
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)


def _sentence(condition: Callable[[], Any], what: str, timeout_s: float) -> str:
    try:
        waited_for = what or " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        waited_for = repr(condition)
    return f"waited {timeout_s:g} s in vain: {waited_for}"
