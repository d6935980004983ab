"""The helper that tests wait with: it returns what it waited for, and says what it waited for in vain."""

from __future__ import annotations

import asyncio

import pytest

from tests.waiting import until, wait_until


async def test_what_a_condition_returns_comes_back_once_it_is_true() -> None:
    looks = iter([None, [], ["found"]])
    assert await until(lambda: next(looks)) == ["found"]

    async def answer_later() -> str:
        await asyncio.sleep(0)
        return "an answer"

    assert await until(answer_later) == "an answer"
    assert wait_until(lambda: "at once") == "at once"


async def test_waiting_in_vain_says_for_what() -> None:
    with pytest.raises(AssertionError, match="in vain: the scorer is ready"):
        await until(lambda: False, "the scorer is ready", timeout_s=0.01)
    with pytest.raises(AssertionError, match=r"in vain: .*until\(lambda: \[\], timeout_s=0.01\)"):
        await until(lambda: [], timeout_s=0.01)
    with pytest.raises(AssertionError, match="in vain: the broker answers"):
        wait_until(lambda: False, "the broker answers", timeout_s=0.01)


async def test_a_condition_that_never_answers_is_waited_for_no_longer() -> None:
    with pytest.raises(AssertionError, match="in vain: an answer"):
        await until(asyncio.Event().wait, "an answer", timeout_s=0.01)
