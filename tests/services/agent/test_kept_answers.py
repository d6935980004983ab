"""Answers to calls with a name: whoever asks again gets what was sampled, and nothing is sampled twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from ratchet.service.errors import EngineError
from schemas.api.generate import IdsGiven, TokensTold
from services.agent.conversation_calls import KeptAnswers
from tests.waiting import until

PROMPT = (5, 6)


def ids_given(*has: int, most: int = 4, **more: Any) -> IdsGiven:
    """The call of a client that has these tokens of its answer."""
    sampling = {"n": 1, "max_tokens": most - len(has), **more}
    return IdsGiven.model_validate(
        {"prompt_ids": [*PROMPT, *has], "sampling": sampling, "adapter_version": "v1.0.0", "begun": len(has)}
    )


class Engine:
    """Says 100, 101, … of which no two are alike, one each time that `steps` is released."""

    def __init__(self) -> None:
        self.steps = asyncio.Semaphore(0)
        self.asked: list[IdsGiven] = []
        self.said: list[int] = []
        self.left = 0
        self.fails_after: int | None = None

    async def sample(self, asked: IdsGiven) -> AsyncGenerator[TokensTold, None]:
        self.asked.append(asked)
        try:
            for number in range(asked.sampling.max_tokens):
                await self.steps.acquire()
                if number == self.fails_after:
                    raise EngineError("it was killed")
                self.said.append(100 + len(self.said))
                is_last = number + 1 == asked.sampling.max_tokens
                yield TokensTold(
                    ids=(self.said[-1],), logprobs=(-self.said[-1] / 8,), finish_reason="length" if is_last else None
                )
        finally:
            self.left += 1


async def read(kept: KeptAnswers, asked: IdsGiven, call: str = "a", most: int = 99) -> list[int]:
    """The first tokens; then the client is gone."""
    found: list[int] = []
    coming = kept.answer(call, asked)
    async for told in coming:
        assert list(told.logprobs) == [-token / 8 for token in told.ids]
        found += told.ids
        if len(found) >= most:
            break
    await coming.aclose()
    return found


async def test_who_asks_again_gets_the_answer_that_was_under_way_when_it_left() -> None:
    engine = Engine()
    kept = KeptAnswers(engine.sample)
    engine.steps.release()
    assert await read(kept, ids_given(), most=1) == [100]

    for _ in range(3):
        engine.steps.release()
    assert await read(kept, ids_given()) == [100, 101, 102, 103]
    assert await read(kept, ids_given()) == [100, 101, 102, 103]
    assert (len(engine.asked), engine.said) == (1, [100, 101, 102, 103])


async def test_who_has_a_part_gets_the_rest_of_the_same_answer() -> None:
    engine = Engine()
    kept = KeptAnswers(engine.sample)
    for _ in range(4):
        engine.steps.release()
    assert await read(kept, ids_given(), most=2)

    assert await read(kept, ids_given(100, 101)) == [102, 103]
    assert len(engine.asked) == 1


@pytest.mark.parametrize("other", [ids_given(999), ids_given(most=5), ids_given(temperature=0.5)])
async def test_what_asks_something_else_under_the_name_is_sampled(other: IdsGiven) -> None:
    engine = Engine()
    kept = KeptAnswers(engine.sample)
    for _ in range(9):
        engine.steps.release()
    await read(kept, ids_given())
    await read(kept, other)

    assert len(engine.asked) == 2


async def test_another_name_is_another_answer() -> None:
    engine = Engine()
    kept = KeptAnswers(engine.sample)
    for _ in range(8):
        engine.steps.release()

    assert await read(kept, ids_given(), "a") != await read(kept, ids_given(), "b")


async def test_a_call_that_is_called_off_is_sampled_no_more_and_forgotten() -> None:
    engine = Engine()
    kept = KeptAnswers(engine.sample)
    engine.steps.release()
    await read(kept, ids_given(), most=1)
    kept.call_off("a")
    kept.call_off("never heard of")
    await until(lambda: engine.left == 1)

    for _ in range(4):
        engine.steps.release()
    assert await read(kept, ids_given()) == [101, 102, 103, 104]


async def test_a_failure_is_told_and_not_kept() -> None:
    engine = Engine()
    kept = KeptAnswers(engine.sample)
    engine.fails_after = 1
    for _ in range(9):
        engine.steps.release()
    with pytest.raises(EngineError, match="it was killed"):
        await read(kept, ids_given())
    engine.fails_after = None

    assert await read(kept, ids_given(100)) == [101, 102, 103]


async def test_the_oldest_whole_answers_go_where_they_are_too_many() -> None:
    engine = Engine()
    kept = KeptAnswers(engine.sample, most_tokens=8)
    for _ in range(16):
        engine.steps.release()
    answers = {name: await read(kept, ids_given(), name) for name in "abc"}

    assert [await read(kept, ids_given(), name) == answers[name] for name in "cba"] == [True, True, False]


async def test_at_the_end_nothing_is_sampled_any_more() -> None:
    engine = Engine()
    kept = KeptAnswers(engine.sample)
    engine.steps.release()
    await read(kept, ids_given(), most=1)
    await kept.close()

    assert engine.left == 1
