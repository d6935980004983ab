"""What is particular to an engine on a server of its own: the recording of one, or with `make vllm-test` a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ratchet.models.tokenization import load_tokenizer, prompt_ids
from ratchet.openai.client import VllmClient
from ratchet.service.errors import AdapterError, EngineError, PromptTooLong
from schemas.messages.work import Sampling
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.vllm_engine import VllmEngine, engine_errors
from tests.services.agent.engines.conftest import BLUE, RED
from tests.services.agent.engines.recorded_vllm import RecordedVllm
from tests.waiting import settled, until

pytestmark = pytest.mark.parametrize(
    "server", ["recorded", pytest.param("real", marks=pytest.mark.vllm)], indirect=True
)

GREEDY = Sampling(n=1, temperature=0.0, max_tokens=8)
HELLO = GenerationRequest("hello", GREEDY)


@pytest.fixture
async def engine(server: RecordedVllm, tiny_model: Path) -> AsyncIterator[VllmEngine]:
    engine = VllmEngine(server.client(), model="base", tokenizer=load_tokenizer(tiny_model), health_period_s=0.02)
    await engine.start()
    yield engine
    await engine.stop()


async def test_a_server_without_our_tokenizer_tokenizes_by_itself(server: RecordedVllm, tiny_model: Path) -> None:
    engine = VllmEngine(server.client(), model="base", health_period_s=60)
    await engine.start()
    (generation,) = await engine.generate([HELLO])
    assert isinstance(generation, Generation)
    assert generation.prompt_ids == tuple(prompt_ids(load_tokenizer(tiny_model), "hello"))
    await engine.stop()


async def test_while_the_server_is_away_it_says_so_and_comes_back_by_itself(
    server: RecordedVllm, engine: VllmEngine
) -> None:
    server.away = True
    (failed,) = await engine.generate([HELLO])
    assert isinstance(failed, EngineError) and not isinstance(failed, AdapterError)
    assert "503" in (engine.trouble() or "")

    server.away = False
    await until(lambda: engine.trouble() is None)
    (answered,) = await engine.generate([HELLO])
    assert isinstance(answered, Generation)


async def test_a_start_waits_for_the_server(server: RecordedVllm, tiny_model: Path) -> None:
    server.away = True
    engine = VllmEngine(server.client(), model="base", tokenizer=load_tokenizer(tiny_model), health_period_s=0.01)
    starting = asyncio.create_task(engine.start())
    await settled()
    assert not starting.done()
    assert engine.trouble() is not None

    server.away = False
    await starting
    assert engine.trouble() is None
    await engine.stop()


async def test_a_server_that_forgot_its_adapters_is_noticed_before_it_is_asked(
    server: RecordedVllm, engine: VllmEngine, tiny_adapters: dict[str, Path]
) -> None:
    await engine.load_adapter(RED, tiny_adapters[RED])
    asked = len(server.requests)
    await until(lambda: len(server.requests) > asked + 4)
    assert engine.adapters() == {RED}
    assert engine.trouble() is None

    await server.forget_adapters()
    await until(lambda: engine.adapters() == frozenset())


async def test_an_adapter_lost_between_two_looks_is_an_error_that_passes(
    server: RecordedVllm, tiny_model: Path, tiny_adapters: dict[str, Path]
) -> None:
    engine = VllmEngine(server.client(), model="base", tokenizer=load_tokenizer(tiny_model), health_period_s=60)
    await engine.start()
    await engine.load_adapter(RED, tiny_adapters[RED])
    await server.forget_adapters()

    (lost,) = await engine.generate([GenerationRequest("hello", GREEDY, RED)])

    assert isinstance(lost, EngineError) and not isinstance(lost, AdapterError)
    assert engine.adapters() == frozenset()
    await engine.load_adapter(RED, tiny_adapters[RED])
    (again,) = await engine.generate([GenerationRequest("hello", GREEDY, RED)])
    assert isinstance(again, Generation)
    await engine.stop()


async def test_adapters_a_server_already_has_are_known_at_start(
    server: RecordedVllm, engine: VllmEngine, tiny_model: Path, tiny_adapters: dict[str, Path]
) -> None:
    await engine.load_adapter(BLUE, tiny_adapters[BLUE])
    second = VllmEngine(server.client(), model="base", tokenizer=load_tokenizer(tiny_model), health_period_s=60)
    await second.start()
    assert second.adapters() == {BLUE}
    await second.stop()


async def test_an_unknown_name_never_reaches_the_server(server: RecordedVllm, engine: VllmEngine) -> None:
    await engine.generate([GenerationRequest("hello", GREEDY, "../../etc/passwd")])
    assert [path for path, _ in server.requests if "completions" in path] == []


async def test_a_server_that_serves_another_model_stops_the_start(server: RecordedVllm) -> None:
    engine = VllmEngine(server.client(), model="other", health_period_s=0.01)
    with pytest.raises(EngineError, match=r"serves \['base'\], not 'other'"):
        await engine.start()
    await engine.stop()


async def test_a_prompt_only_the_server_finds_too_long_is_told_apart(server: RecordedVllm) -> None:
    client = VllmClient(server.client(), setting="THE_URL", timeout_s=60, api_path="/v1")
    with pytest.raises(PromptTooLong), engine_errors():
        await client.complete({"model": "base", "prompt": [65] * 200, "max_tokens": 8})
    await client.stop()
