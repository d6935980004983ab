from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.models.batcher import Batcher
from ratchet.service.telemetry import task_in_hand
from tests.waiting import until


class Recorder:
    """Answers `x` with `x * 10`; holds every batch until `gate` opens; fails as told."""

    def __init__(self, *, fails: Sequence[int] = (), raises_on: Sequence[int] = ()) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = fails
        self.raises_on = raises_on

    async def __call__(self, requests: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(requests))
        await self.gate.wait()
        if any(request in self.raises_on for request in requests):
            raise ValueError(f"poison in {list(requests)}")
        return [KeyError(request) if request in self.fails else request * 10 for request in requests]


async def test_a_lone_request_is_run_at_once() -> None:
    run = Recorder()
    assert await Batcher(run, max_batch=8).submit(1) == 10
    assert run.batches == [[1]]


async def test_what_waits_while_the_runner_is_busy_becomes_one_batch() -> None:
    run = Recorder()
    run.gate.clear()
    batcher: Batcher[int, int] = Batcher(run, max_batch=3)
    first = asyncio.create_task(batcher.submit(0))
    await until(lambda: run.batches)
    rest = [asyncio.create_task(batcher.submit(n)) for n in range(1, 6)]
    await asyncio.sleep(0)
    assert batcher.waiting == 5

    run.gate.set()

    assert await asyncio.gather(first, *rest) == [0, 10, 20, 30, 40, 50]
    assert run.batches == [[0], [1, 2, 3], [4, 5]]
    assert batcher.waiting == 0


async def test_higher_priority_goes_first_then_arrival() -> None:
    run = Recorder()
    batcher: Batcher[int, int] = Batcher(run, max_batch=2)
    order = [(1, 0), (2, 9), (3, 0), (4, 9), (5, 5)]

    await asyncio.gather(*(batcher.submit(n, priority=priority) for n, priority in order))

    assert run.batches == [[2, 4], [5, 1], [3]]


async def test_sizes_bound_a_batch_and_an_oversized_request_runs_alone() -> None:
    run = Recorder()
    batcher: Batcher[int, int] = Batcher(run, max_batch=8, size_of=lambda n: n)

    await asyncio.gather(*(batcher.submit(n) for n in (4, 4, 20, 3, 6)))

    assert run.batches == [[4, 4], [20], [3], [6]]


async def test_a_failing_request_fails_alone() -> None:
    run = Recorder(fails=[2])
    batcher: Batcher[int, int] = Batcher(run, max_batch=8)

    results = await asyncio.gather(*(batcher.submit(n) for n in (1, 2, 3)), return_exceptions=True)

    assert [results[0], results[2]] == [10, 30]
    assert isinstance(results[1], KeyError)
    assert run.batches == [[1, 2, 3]]


async def test_a_batch_that_raises_is_run_again_one_by_one() -> None:
    run = Recorder(raises_on=[2])
    batcher: Batcher[int, int] = Batcher(run, max_batch=8)

    results = await asyncio.gather(*(batcher.submit(n) for n in (1, 2, 3)), return_exceptions=True)

    assert [results[0], results[2]] == [10, 30]
    assert isinstance(results[1], ValueError)
    assert run.batches == [[1, 2, 3], [1], [2], [3]]


async def test_a_runner_that_answers_too_little_fails_the_request_and_says_so() -> None:
    async def forgetful(requests: Sequence[int]) -> list[int | Exception]:
        return []

    with pytest.raises(RuntimeError, match="1 requests were answered with 0 results"):
        await Batcher(forgetful, max_batch=8).submit(1)


async def test_after_a_failure_the_batcher_goes_on() -> None:
    batcher: Batcher[int, int] = Batcher(Recorder(raises_on=[1]), max_batch=8)
    with pytest.raises(ValueError, match="poison"):
        await batcher.submit(1)
    assert await batcher.submit(2) == 20


async def test_a_request_cancelled_while_waiting_is_never_run() -> None:
    run = Recorder()
    run.gate.clear()
    batcher: Batcher[int, int] = Batcher(run, max_batch=8)
    first = asyncio.create_task(batcher.submit(0))
    await until(lambda: run.batches)
    second, third = asyncio.create_task(batcher.submit(1)), asyncio.create_task(batcher.submit(2))
    await asyncio.sleep(0)

    second.cancel()
    await asyncio.sleep(0)
    run.gate.set()

    assert (await first, await third) == (0, 20)
    assert second.cancelled()
    assert run.batches == [[0], [2]]


async def test_a_request_cancelled_while_running_leaves_its_batch_whole() -> None:
    run = Recorder()
    run.gate.clear()
    batcher: Batcher[int, int] = Batcher(run, max_batch=8)
    first, second = asyncio.create_task(batcher.submit(1)), asyncio.create_task(batcher.submit(2))
    await until(lambda: run.batches)

    first.cancel()
    await asyncio.sleep(0)
    run.gate.set()

    assert await second == 20
    assert first.cancelled()
    assert run.batches == [[1, 2]]


async def test_a_batch_does_not_run_under_the_task_id_of_one_of_its_members() -> None:
    seen: list[str | None] = []

    async def run(requests: Sequence[int]) -> list[int | Exception]:
        seen.append(task_in_hand.get())
        return list(requests)

    token = task_in_hand.set("t-1")
    await Batcher(run, max_batch=8).submit(1)
    task_in_hand.reset(token)

    assert seen == [None]


@given(
    requests=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30),
    max_batch=st.integers(1, 12),
    fails=st.lists(st.integers(0, 9), max_size=3),
    raises_on=st.lists(st.integers(0, 9), max_size=3),
)
def test_every_request_gets_its_own_answer_and_no_batch_is_too_large(
    requests: list[tuple[int, int]], max_batch: int, fails: list[int], raises_on: list[int]
) -> None:
    async def scenario() -> None:
        run = Recorder(fails=fails, raises_on=raises_on)
        batcher: Batcher[int, int] = Batcher(run, max_batch=max_batch, size_of=lambda n: n)
        results = await asyncio.gather(
            *(batcher.submit(n, priority=priority) for n, priority in requests), return_exceptions=True
        )
        for (n, _), result in zip(requests, results, strict=True):
            if n in raises_on:
                assert isinstance(result, ValueError)
            elif n in fails:
                assert isinstance(result, KeyError)
            else:
                assert result == n * 10
        assert all(len(batch) == 1 or sum(batch) <= max_batch for batch in run.batches)

    asyncio.run(scenario())
