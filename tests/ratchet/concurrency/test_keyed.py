"""Turns: one at a time for each key."""

from __future__ import annotations

import asyncio

import pytest

from ratchet.concurrency.keyed import KeyedLock


async def test_of_one_key_only_one_has_a_turn_at_a_time() -> None:
    turns, running, most, ended = KeyedLock(), 0, 0, 0

    async def work() -> None:
        nonlocal running, most, ended
        async with turns.of("task"):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            ended += 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert (most, ended) == (1, 20)


async def test_another_key_does_not_wait() -> None:
    turns = KeyedLock()
    async with asyncio.timeout(30), turns.of("one"), turns.of("other"):
        pass


async def test_a_turn_ends_with_an_error_too_and_one_who_gave_up_waiting_blocks_nobody() -> None:
    turns = KeyedLock()

    async def wait() -> None:
        async with turns.of("task"):
            pass

    with pytest.raises(KeyError):
        async with turns.of("task"):
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(0)
            raise KeyError("work failed")
    async with asyncio.timeout(30):
        await wait()
