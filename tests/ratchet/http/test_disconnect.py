"""Work ends with its client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import Request

from ratchet.http.problem import Problem
from ratchet.http.work import while_connected


def request(gone: asyncio.Event) -> Request:
    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http"}, receive)


async def test_work_that_ends_first_is_the_answer() -> None:
    async def work() -> int:
        return 7

    assert await while_connected(request(asyncio.Event()), work()) == 7


async def test_work_that_fails_fails() -> None:
    async def work() -> int:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await while_connected(request(asyncio.Event()), work())


async def test_work_nobody_waits_for_is_cancelled() -> None:
    gone, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            gone.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(Problem):
        await while_connected(request(gone), work())
    async with asyncio.timeout(30):
        await cancelled.wait()


async def test_a_deadline_from_outside_ends_the_work_too() -> None:
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await while_connected(request(asyncio.Event()), work())
    async with asyncio.timeout(30):
        await cancelled.wait()
