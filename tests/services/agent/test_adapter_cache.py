from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ratchet.adapters.folder import adapter_sha256, served_name
from ratchet.service.errors import AdapterError, EngineError
from schemas.messages.response import Sample
from schemas.messages.work import Arm
from services.agent.adapter_cache import AdapterCache
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.scripted import EchoEngine
from tests.waiting import settled, until

WriteAdapter = Callable[..., Path]


class CountingEngine(EchoEngine):
    """Takes its time to load and to unload, and says how often it loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.unloads: list[str] = []
        self.free = asyncio.Event()
        self.free.set()
        self.away = False
        self.first_answer: EngineError | Generation | None = None
        self.state: str | None = None
        self.on_load: Callable[[Path], None] = lambda _: None

    async def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        if self.first_answer is not None:
            return [self.first_answer for _ in requests]
        return await super().generate(requests)

    def trouble(self) -> str | None:
        return self.state

    async def load_adapter(self, name: str, path: Path) -> None:
        self.loads.append(name)
        await asyncio.sleep(0)
        await self.free.wait()
        await super().load_adapter(name, path)
        self.on_load(path)

    async def unload_adapter(self, name: str) -> None:
        if self.away:
            raise EngineError("the server is away")
        self.unloads.append(name)
        await self.free.wait()
        await super().unload_adapter(name)


@pytest.fixture
def engine() -> CountingEngine:
    return CountingEngine()


@pytest.fixture
def cache(engine: CountingEngine, tmp_path: Path) -> AdapterCache:
    return AdapterCache(engine, "small", tmp_path / "adapters", max_loaded=2)


def arm(version: str, sha256: str | None = None) -> Arm:
    return Arm(sequence=0, adapter_version=version, adapter_sha256=sha256)


async def test_the_base_version_needs_no_adapter(cache: AdapterCache, engine: CountingEngine) -> None:
    async with cache.acquire(arm("v1.0.0")) as adapter:
        assert adapter is None
    assert engine.loads == []


async def test_an_adapter_is_loaded_once_however_many_ask(
    cache: AdapterCache, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    sha256 = adapter_sha256(write_adapter("v1.0.1"))

    async def use() -> str:
        async with cache.acquire(arm("v1.0.1", sha256)) as adapter:
            assert adapter is not None
            return adapter.name

    assert set(await asyncio.gather(*(use() for _ in range(8)))) == {f"small-v1.0.1-{sha256[:8]}"}
    assert len(engine.loads) == 1


async def test_an_arm_without_a_sum_takes_what_lies_there(cache: AdapterCache, write_adapter: WriteAdapter) -> None:
    sha256 = adapter_sha256(write_adapter("v1.0.1"))
    async with cache.acquire(arm("v1.0.1")) as adapter:
        assert adapter is not None and adapter.sha256 == sha256


async def test_changed_weights_are_refused_under_the_old_name(
    cache: AdapterCache, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    folder = write_adapter("v1.0.1")
    registered = adapter_sha256(folder)
    (folder / "adapter_model.safetensors").chmod(0o644)
    (folder / "adapter_model.safetensors").write_text("tampered")
    with pytest.raises(AdapterError, match="not the one that was registered"):
        async with cache.acquire(arm("v1.0.1", registered)):
            pass
    assert engine.loads == []


async def test_the_least_recently_used_adapter_makes_room(
    cache: AdapterCache, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    for version in ("v1.0.1", "v1.0.2", "v1.0.3"):
        write_adapter(version)
    for version in ("v1.0.1", "v1.0.2", "v1.0.1", "v1.0.3"):
        async with cache.acquire(arm(version)):
            pass
    assert {name.split("-")[1] for name in engine.adapters()} == {"v1.0.1", "v1.0.3"}


async def test_an_adapter_in_use_is_never_unloaded(
    cache: AdapterCache, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    for version in ("v1.0.1", "v1.0.2", "v1.0.3"):
        write_adapter(version)
    async with AsyncExitStack() as acquired:
        for version in ("v1.0.1", "v1.0.2", "v1.0.3"):
            await acquired.enter_async_context(cache.acquire(arm(version)))
        assert len(engine.adapters()) == 3


async def test_a_restored_adapter_is_found_again(cache: AdapterCache, write_adapter: WriteAdapter) -> None:
    with pytest.raises(AdapterError, match="restore it, or roll back"):
        async with cache.acquire(arm("v1.0.1")):
            pass
    write_adapter("v1.0.1")
    async with cache.acquire(arm("v1.0.1")) as adapter:
        assert adapter is not None


async def test_a_task_whose_adapter_is_there_does_not_wait_while_another_is_loaded(
    cache: AdapterCache, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    write_adapter("v1.0.1")
    async with cache.acquire(arm("v1.0.1")):
        pass
    engine.free.clear()
    loading = asyncio.create_task(cache.load("v1.0.2", adapter_sha256(write_adapter("v1.0.2"))))
    await until(lambda: len(engine.loads) == 2)

    async with asyncio.timeout(30), cache.acquire(arm("v1.0.1")) as adapter:
        assert adapter is not None
        assert not loading.done()

    engine.free.set()
    await loading
    assert len(engine.adapters()) == 2


async def test_an_adapter_asked_for_while_it_is_unloaded_is_loaded_again(
    cache: AdapterCache, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    write_adapter("v1.0.1")
    async with cache.acquire(arm("v1.0.1")):
        pass
    engine.free.clear()
    unloading = asyncio.create_task(cache.unload_all_but(set()))
    await until(lambda: engine.unloads)

    async def use() -> frozenset[str]:
        async with cache.acquire(arm("v1.0.1")):
            return engine.adapters()

    using = asyncio.create_task(use())
    await settled(0.02)
    assert not using.done()
    engine.free.set()
    await unloading

    assert len(await using) == 1
    assert len(engine.loads) == 2


async def test_what_can_t_be_unloaded_now_goes_next_time(
    cache: AdapterCache, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    write_adapter("v1.0.1")
    async with cache.acquire(arm("v1.0.1")):
        pass
    engine.away = True
    await cache.unload_all_but(set())
    assert cache.versions() == {"v1.0.1"}

    engine.away = False
    await cache.unload_all_but(set())

    assert cache.versions() == frozenset()


NO_LOGPROB = Generation((Sample(text="a", completion_ids=(1,), logprobs=(-9999.0,), finish_reason="length"),))


@pytest.mark.parametrize(
    "answer", [AdapterError("not finite"), EngineError("it answered with 500"), NO_LOGPROB], ids=repr
)
async def test_an_adapter_that_can_t_answer_a_first_prompt_is_refused_and_not_kept(
    cache: AdapterCache, engine: CountingEngine, write_adapter: WriteAdapter, answer: Generation | EngineError
) -> None:
    engine.first_answer = answer
    with pytest.raises(AdapterError, match="first prompt"):
        await cache.load("v1.0.1", adapter_sha256(write_adapter("v1.0.1")))

    assert engine.adapters() == frozenset()
    assert cache.versions() == frozenset()


async def test_an_engine_that_goes_away_before_the_first_answer_is_not_the_adapter_s_fault(
    cache: AdapterCache, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    sha256 = adapter_sha256(write_adapter("v1.0.1"))
    engine.first_answer, engine.state = EngineError("gone"), "the server is away"
    with pytest.raises(EngineError, match="gone") as raised:
        await cache.load("v1.0.1", sha256)
    assert not isinstance(raised.value, AdapterError)

    engine.first_answer, engine.state = None, None
    await cache.load("v1.0.1", sha256)
    assert cache.versions() == {"v1.0.1"}


async def test_an_adapter_that_the_engine_had_before_is_checked_all_the_same(
    cache: AdapterCache, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    # given a server that kept an adapter over the agent's restart, with which nothing can be answered any more
    folder = write_adapter("v1.0.1")
    sha256 = adapter_sha256(folder)
    await engine.load_adapter(served_name("small", "v1.0.1", sha256), folder)
    engine.first_answer = AdapterError("not finite")

    with pytest.raises(AdapterError, match="first prompt"):
        await cache.load("v1.0.1", sha256)


async def test_files_that_are_exchanged_while_they_are_loaded_are_not_served(
    cache: AdapterCache, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    sha256 = adapter_sha256(write_adapter("v1.0.1"))

    def exchange(folder: Path) -> None:
        folder.chmod(0o755)
        other = folder / "other"
        other.write_bytes(b"other weights")
        other.rename(folder / "adapter_model.safetensors")

    engine.on_load = exchange
    with pytest.raises(AdapterError, match="not the one that was registered"):
        await cache.load("v1.0.1", sha256)
    assert engine.adapters() == frozenset()


async def test_a_version_that_became_a_link_is_refused(
    cache: AdapterCache, engine: CountingEngine, write_adapter: WriteAdapter, tmp_path: Path
) -> None:
    folder = write_adapter("v1.0.1")
    sha256 = adapter_sha256(folder)
    folder.rename(tmp_path / "outside")
    folder.symlink_to(tmp_path / "outside")

    with pytest.raises(AdapterError, match="a link, or reached through one"):
        await cache.load("v1.0.1", sha256)
    assert engine.loads == []
