from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from ratchet.bus.in_hand import NEVER, Stepwise
from ratchet.service.errors import EngineError, PromptTooLong
from schemas.messages.work import Sampling
from services.agent.engines.engine import BatchEngine, Generation, GenerationRequest, IdsRequest
from services.agent.engines.own_process.calls import LENGTH, Order, Started, encode_frame
from services.agent.engines.own_process.child_process import ChildProcess, Pipe
from services.agent.engines.own_process.engine_process import EngineProcess
from tests.processes import is_gone
from tests.services.agent.engines.child_here import begin_here
from tests.services.agent.engines.own_process.scripted import (
    BEGUN,
    DEADLY,
    DIE,
    EXIT,
    GO,
    LOADING,
    LONG,
    ODD,
    OWN_ERROR,
    SLOW,
    SLOWLY,
    SLOWLY_DONE,
    MeetingEngine,
    NoModel,
    ScriptedEngine,
    broken,
    deadly,
)
from tests.waiting import until


@asynccontextmanager
async def started(make: Callable[[], BatchEngine], max_batch: int = 64) -> AsyncIterator[EngineProcess]:
    engine = EngineProcess(make, max_batch=max_batch)
    await engine.start()
    yield engine
    await engine.stop()


def ask(prompt: str, adapter: str | None = None, *, n: int = 1, priority: int = 0) -> GenerationRequest:
    return GenerationRequest(prompt, Sampling(n=n), adapter, priority)


def text(answer: Generation | EngineError) -> str:
    assert isinstance(answer, Generation), answer
    return answer.samples[0].text


def batches() -> float:
    return REGISTRY.get_sample_value("ratchet_agent_batch_samples_count") or 0.0


async def test_what_waits_in_the_child_becomes_a_batch_by_priority_and_the_cancelled_never_runs(
    tmp_path: Path,
) -> None:
    counted = batches()
    async with started(partial(ScriptedEngine, tmp_path), max_batch=4) as engine:
        first = asyncio.create_task(engine.generate([ask("first")]))
        await until((tmp_path / BEGUN).exists)
        waiting = [ask("a", n=2), ask("given up"), ask("b", n=2), ask("urgent", n=2, priority=9)]
        running = [asyncio.create_task(engine.generate([request])) for request in waiting]
        await asyncio.sleep(0)
        running[1].cancel()
        await asyncio.sleep(0.5)  # real time: the child says nothing of what it has received
        (tmp_path / GO).touch()
        ended = await asyncio.gather(first, *running, return_exceptions=True)

    assert isinstance(ended.pop(2), asyncio.CancelledError)
    assert [text(answers[0]) for answers in ended if not isinstance(answers, BaseException)] == [
        "first",
        "urgent a",
        "b",
        "urgent a",
    ]
    assert batches() - counted == 3


async def test_an_engine_that_needs_no_batches_is_given_what_comes_while_it_generates() -> None:
    engine = EngineProcess(MeetingEngine, max_batch=1, begin=partial(begin_here, step_every_s=0.0))
    await engine.start()
    first = asyncio.create_task(engine.generate([ask("first")]))
    given_up = asyncio.create_task(engine.generate([ask("given up")]))
    began = engine.advanced_at()
    await until(lambda: engine.advanced_at() > began)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    later = await engine.generate([ask("second"), ask(LONG)])

    assert text((await first)[0]) == text(later[0]) == f"first second {LONG}"
    assert isinstance(later[1], PromptTooLong)
    await engine.stop()


async def test_errors_of_requests_come_back_as_what_they_are_and_harm_no_other() -> None:
    async with started(ScriptedEngine) as engine:
        fine, long, odd, other, own = await engine.generate(
            [ask("fine"), ask(LONG), ask(ODD), ask("x", "none-such"), ask(OWN_ERROR)]
        )

    assert text(fine)
    assert isinstance(long, PromptTooLong) and str(long) == "too long by 7 tokens"
    assert isinstance(odd, EngineError) and "ZeroDivisionError" in str(odd)
    assert isinstance(other, EngineError)
    assert type(own) is EngineError and str(own) == "a device is lost: code 7"


async def test_an_engine_without_token_ids_says_so() -> None:
    async with started(ScriptedEngine) as engine:
        with pytest.raises(EngineError, match="takes no token ids"):
            await anext(engine.generate_ids(IdsRequest((1, 2), Sampling())))


async def test_a_child_that_dies_is_started_again_with_its_adapters_and_the_calls_in_hand_fail(tmp_path: Path) -> None:
    async with started(ScriptedEngine) as engine:
        await engine.load_adapter("red", tmp_path)
        before = engine.process_id

        (died,) = await engine.generate([ask(DIE)])
        trouble = engine.trouble()
        (meanwhile,) = await engine.generate([ask("too early")])
        await until(lambda: engine.trouble() is None)
        (again,) = await engine.generate([ask("hello", "red")])

        assert isinstance(died, EngineError) and "out of memory" in str(died)
        assert trouble == str(died)
        assert isinstance(meanwhile, EngineError)
        assert text(again) == "hello red"
        assert engine.process_id not in (None, before)


async def test_requests_and_answers_of_many_megabytes_pass() -> None:
    prompts = [letter * 8_000_000 for letter in "ab"]
    async with started(ScriptedEngine, max_batch=1) as engine:
        answers = await engine.generate([ask(prompt) for prompt in prompts])

    assert [text(answer) for answer in answers] == prompts


async def test_a_child_that_dies_while_its_adapters_are_loaded_again_is_started_once_more(tmp_path: Path) -> None:
    async with started(ScriptedEngine) as engine:
        await engine.load_adapter("red", tmp_path)
        (tmp_path / DEADLY).touch()

        await engine.generate([ask(DIE)])
        await until(lambda: "can't be started again" in (engine.trouble() or ""))
        (tmp_path / DEADLY).unlink()
        await until(lambda: engine.trouble() is None)

        (again,) = await engine.generate([ask("hello", "red")])
        assert text(again) == "hello red"


@pytest.mark.parametrize("is_gone", [False, True])
async def test_an_adapter_let_go_while_it_is_loaded_again_is_gone_from_the_child_too(
    tmp_path: Path, is_gone: bool
) -> None:
    async with started(ScriptedEngine) as engine:
        folder = tmp_path / "red"
        folder.mkdir()
        await engine.load_adapter("red", folder)
        (folder / SLOW).touch()

        await engine.generate([ask(DIE)])
        await until((folder / LOADING).exists)
        with pytest.raises(EngineError):
            await engine.unload_adapter("red")
        if is_gone:
            shutil.rmtree(folder)
        await until(lambda: engine.trouble() is None)

        (answer,) = await engine.generate([ask("hello", "red")])
        assert isinstance(answer, EngineError) and "no adapter 'red'" in str(answer)


async def test_an_adapter_whose_asker_gave_up_while_it_was_loaded_is_known(tmp_path: Path) -> None:
    async with started(ScriptedEngine) as engine:
        (tmp_path / SLOW).touch()
        loading = asyncio.create_task(engine.load_adapter("red", tmp_path))
        await until((tmp_path / LOADING).exists)
        loading.cancel()

        await until(lambda: engine.adapters() == {"red"})


async def test_a_child_that_exits_with_threads_of_the_model_left_is_noticed() -> None:
    async with started(ScriptedEngine) as engine:
        async with asyncio.timeout(30.0):
            (answer,) = await engine.generate([ask(EXIT)])

        assert isinstance(answer, EngineError) and "exit code 1" in str(answer)


async def test_a_child_that_can_t_be_understood_is_ended_and_its_calls_fail() -> None:
    ours, childs = socket.socketpair()
    child = await asyncio.create_subprocess_exec("sleep", "60")
    childs.sendall(encode_frame(Started("mute", None)))
    process = await ChildProcess.send_order(child, await Pipe.open(ours), Order(ScriptedEngine, 1))
    asked = asyncio.create_task(process.call("generate", ask("hello")))

    childs.sendall(LENGTH.pack(3) + b"???")

    with pytest.raises(EngineError, match="can't be understood"):
        await asked
    assert "can't be understood" in await process.wait_end()
    assert is_gone(child.pid)
    childs.close()


async def test_no_room_for_a_process_is_a_reason_like_any_other() -> None:
    _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(EngineError, match=r"can't be started: .*open files"):
            await EngineProcess(ScriptedEngine, max_batch=1).start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_an_adapter_that_is_gone_by_then_is_forgotten(tmp_path: Path) -> None:
    async with started(ScriptedEngine) as engine:
        folder = tmp_path / "red"
        folder.mkdir()
        await engine.load_adapter("red", folder)
        folder.rmdir()

        await engine.generate([ask(DIE)])
        await until(lambda: engine.trouble() is None)

        assert engine.adapters() == frozenset()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (NoModel("there is no model in models/none"), "^there is no model in models/none$"),
        (broken, "ZeroDivisionError"),
        (deadly, "exit code 7"),
    ],
)
async def test_a_model_that_can_t_be_loaded_says_why(make: Callable[[], BatchEngine], why: str) -> None:
    engine = EngineProcess(make, max_batch=1)

    with pytest.raises(EngineError, match=why):
        await engine.start()

    assert engine.trouble() is not None
    await engine.stop()


async def test_a_slow_batch_shows_its_steps_and_a_hung_one_shows_none() -> None:
    engine = EngineProcess(ScriptedEngine, max_batch=4, begin=partial(begin_here, step_every_s=0.0))
    await engine.start()
    began = engine.advanced_at()

    running = asyncio.create_task(engine.generate([ask(SLOWLY)]))
    await until(lambda: engine.advanced_at() > began)
    stepping = engine.advanced_at()
    await until(lambda: engine.advanced_at() > stepping)
    SLOWLY_DONE.set()
    (answer,) = await running
    ended = engine.advanced_at()
    await engine.stop()

    assert text(answer) == SLOWLY
    assert ended >= stepping
    assert isinstance(engine, Stepwise)
    assert engine.advanced_at() == NEVER


async def test_a_stop_waits_for_nothing_and_leaves_no_process(tmp_path: Path) -> None:
    async with started(partial(ScriptedEngine, tmp_path)) as engine:
        child = engine.process_id or 0
        waiting = "more than a socket holds" * 100_000
        running = asyncio.create_task(engine.generate([ask("for a minute"), ask(waiting), ask(waiting)]))
        await until((tmp_path / BEGUN).exists)
        async with asyncio.timeout(30.0):
            await engine.stop()
        answers = await running

    assert [str(answer) for answer in answers] == ["the agent is stopping"] * 3
    assert is_gone(child)


async def test_a_signal_to_the_whole_group_is_the_parent_s_to_answer(tmp_path: Path) -> None:
    async with started(partial(ScriptedEngine, tmp_path)) as engine:
        running = asyncio.create_task(engine.generate([ask("in hand")]))
        await until((tmp_path / BEGUN).exists)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(engine.process_id or 0, number)
        (tmp_path / GO).touch()
        (answer,) = await running

    assert text(answer) == "in hand"


PARENT = """
import asyncio, sys
from functools import partial
from pathlib import Path
from schemas.messages.work import Sampling
from services.agent.engines.engine import GenerationRequest
from services.agent.engines.own_process.engine_process import EngineProcess
from tests.services.agent.engines.own_process.scripted import ScriptedEngine

async def main():
    engine = EngineProcess(partial(ScriptedEngine, Path(sys.argv[1])), max_batch=1)
    await engine.start()
    print(engine.process_id, flush=True)
    await engine.generate([GenerationRequest("for a minute", Sampling(n=1), None, 0)])

asyncio.run(main())
"""


async def test_a_child_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, tmp_path, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    await until((tmp_path / BEGUN).exists)

    parent.kill()

    await parent.wait()
    await until(lambda: is_gone(child))
