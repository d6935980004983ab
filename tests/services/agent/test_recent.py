from __future__ import annotations

import asyncio

from services.agent.worker import RecentAnswers


class Maker:
    def __init__(self) -> None:
        self.made = 0
        self.fails = False

    async def __call__(self) -> bytes:
        self.made += 1
        for _ in range(5):
            await asyncio.sleep(0)
        if self.fails:
            raise ValueError("no answer")
        return b"answer %d" % self.made


async def test_an_answer_is_made_once_while_it_is_remembered() -> None:
    recent, make = RecentAnswers(), Maker()
    together = await asyncio.gather(*(recent.answer("a", make) for _ in range(3)))
    assert [*together, await recent.answer("a", make)] == [b"answer 1"] * 4


async def test_a_failure_is_raised_and_tried_again_by_whoever_waits_and_whoever_comes() -> None:
    recent, make = RecentAnswers(), Maker()
    make.fails = True
    failures = await asyncio.gather(*(recent.answer("a", make) for _ in range(2)), return_exceptions=True)
    assert [str(failure) for failure in failures] == ["no answer"] * 2

    make.fails = False
    assert await recent.answer("a", make) == b"answer 3"


async def test_where_an_asker_is_cancelled_the_next_one_gets_its_answer_made() -> None:
    recent, make = RecentAnswers(), Maker()
    asking = asyncio.create_task(recent.answer("a", make))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(recent.answer("a", make))
    await asyncio.sleep(0)
    asking.cancel()
    assert await waiting == b"answer 2"


async def test_memory_is_bounded_in_bytes_and_the_oldest_goes_first() -> None:
    recent, make = RecentAnswers(kept_bytes=20), Maker()
    for key in ("a", "b", "c"):
        await recent.answer(key, make)
    assert await recent.answer("c", make) == b"answer 3"
    assert await recent.answer("a", make) == b"answer 4"
