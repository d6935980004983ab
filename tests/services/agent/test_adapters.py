from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from schemas.work import Arm
from services.adapters.folder import adapter_sha256
from services.agent.adapters import AdapterShelf
from services.agent.engines.echo import EchoEngine
from services.errors import AdapterError

WriteAdapter = Callable[..., Path]


class CountingEngine(EchoEngine):
    """Takes its time to load, and says how often it did."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []

    async def load_adapter(self, name: str, path: Path) -> None:
        self.loads.append(name)
        await asyncio.sleep(0.01)
        await super().load_adapter(name, path)


@pytest.fixture
def engine() -> CountingEngine:
    return CountingEngine()


@pytest.fixture
def shelf(engine: CountingEngine, tmp_path: Path) -> AdapterShelf:
    return AdapterShelf(engine, "small", tmp_path / "adapters", max_loaded=2)


def arm(version: str, sha256: str | None = None) -> Arm:
    return Arm(sequence=0, adapter_version=version, adapter_sha256=sha256)


async def test_the_base_version_needs_no_adapter(shelf: AdapterShelf, engine: CountingEngine) -> None:
    async with shelf.lend(arm("v1.0.0")) as adapter:
        assert adapter is None
    assert engine.loads == []


async def test_an_adapter_is_loaded_once_however_many_ask(
    shelf: AdapterShelf, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    sha256 = adapter_sha256(write_adapter("v1.0.1"))

    async def use() -> str:
        async with shelf.lend(arm("v1.0.1", sha256)) as adapter:
            assert adapter is not None
            return adapter.name

    assert set(await asyncio.gather(*(use() for _ in range(8)))) == {f"small-v1.0.1-{sha256[:8]}"}
    assert len(engine.loads) == 1


async def test_an_arm_without_a_sum_takes_what_lies_there(shelf: AdapterShelf, write_adapter: WriteAdapter) -> None:
    sha256 = adapter_sha256(write_adapter("v1.0.1"))
    async with shelf.lend(arm("v1.0.1")) as adapter:
        assert adapter is not None and adapter.sha256 == sha256


async def test_changed_weights_are_refused_under_the_old_name(
    shelf: AdapterShelf, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    folder = write_adapter("v1.0.1")
    registered = adapter_sha256(folder)
    (folder / "adapter_model.safetensors").write_text("tampered")
    with pytest.raises(AdapterError, match="not the one that was registered"):
        async with shelf.lend(arm("v1.0.1", registered)):
            pass
    assert engine.loads == []


async def test_the_adapter_lent_longest_ago_makes_room(
    shelf: AdapterShelf, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    for version in ("v1.0.1", "v1.0.2", "v1.0.3"):
        write_adapter(version, content=version)
    for version in ("v1.0.1", "v1.0.2", "v1.0.1", "v1.0.3"):
        async with shelf.lend(arm(version)):
            pass
    assert {name.split("-")[1] for name in engine.adapters()} == {"v1.0.1", "v1.0.3"}


async def test_an_adapter_in_use_is_never_unloaded(
    shelf: AdapterShelf, engine: CountingEngine, write_adapter: WriteAdapter
) -> None:
    for version in ("v1.0.1", "v1.0.2", "v1.0.3"):
        write_adapter(version, content=version)
    async with AsyncExitStack() as lent:
        for version in ("v1.0.1", "v1.0.2", "v1.0.3"):
            await lent.enter_async_context(shelf.lend(arm(version)))
        assert len(engine.adapters()) == 3


async def test_a_restored_adapter_is_found_again(shelf: AdapterShelf, write_adapter: WriteAdapter) -> None:
    with pytest.raises(AdapterError, match="restore it, or roll back"):
        async with shelf.lend(arm("v1.0.1")):
            pass
    write_adapter("v1.0.1")
    async with shelf.lend(arm("v1.0.1")) as adapter:
        assert adapter is not None
