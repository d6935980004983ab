"""The share of the fleet's own tasks: at once beside few tasks of users, one sample for nine of theirs beside many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from ratchet.concurrency.own_share import OwnShare
from tests.waiting import settled, until


@asynccontextmanager
async def in_hand(share: OwnShare, tasks: int) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for _ in range(tasks):
            await stack.enter_async_context(share.turn(1, own=False, within_s=60.0))
        yield


async def test_an_own_task_begins_at_once_beside_few_tasks_of_users() -> None:
    share = OwnShare(0.1, room=8)

    async with in_hand(share, 4), asyncio.timeout(5), share.turn(64, own=True, within_s=60.0):
        pass


async def test_beside_many_it_begins_once_users_had_nine_times_as_many_samples() -> None:
    # given an engine that is full, and an own task of two samples that waits
    share, begun = OwnShare(0.1, room=8), asyncio.Event()

    async def own() -> None:
        async with share.turn(2, own=True, within_s=60.0):
            begun.set()

    async with in_hand(share, 8):
        waiting = asyncio.create_task(own())
        await settled(0)

        # when seventeen of users' samples are made, then it still waits; with the eighteenth it begins
        for made in range(1, 19):
            assert not begun.is_set(), made
            async with in_hand(share, 1):
                pass
            await settled(0)
        await until(begun.is_set)
        await waiting


async def test_beside_many_it_waits_no_longer_than_its_time() -> None:
    share = OwnShare(0.1, room=8)

    async with in_hand(share, 8), asyncio.timeout(5), share.turn(2, own=True, within_s=0.05):
        pass
