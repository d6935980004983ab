"""The engines, each over the same tiny model and adapters, behind one fixture.

What needs torch is imported in the fixtures, so that tests that ask for none of them do not wait for it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import pytest

from services.agent.engines.engine import Engine
from services.agent.engines.own_process.engine_process import EngineProcess
from services.agent.engines.scripted import EchoEngine
from tests.programs import REPOSITORY
from tests.services.agent.engines.child_here import begin_here
from tests.services.agent.engines.recorded_vllm import RecordedVllm

RED, BLUE = "small-v1.0.1-0000aaaa", "small-v1.0.2-0000bbbb"


@dataclass(frozen=True)
class Bench:
    """An engine that was started, and what it was given. `tokens`: it has any."""

    engine: Engine
    model: Path
    max_positions: int
    adapters: dict[str, Path] = field(default_factory=dict)
    tokens: bool = True


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.ratchet.models.tiny_model import save_tiny_model

    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def tiny_adapters(tiny_model: Path) -> dict[str, Path]:
    from tests.ratchet.models.tiny_model import save_adapter

    return {
        RED: save_adapter(tiny_model, tiny_model.parent / "red", seed=2),
        BLUE: save_adapter(tiny_model, tiny_model.parent / "blue", seed=3),
    }


def real_server() -> str:
    """Return the URL of the server that `make vllm-test` starts; skip without one."""
    url = os.environ.get("RATCHET_TEST_VLLM_URL")
    return url or pytest.skip("no vLLM server here: `make vllm-test` starts one")


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[RecordedVllm]:
    """A vLLM server: its recording, or the real one with `indirect=["real"]`."""
    recorded = RecordedVllm(real_server() if getattr(request, "param", None) == "real" else None)
    yield recorded
    await recorded.stop()


@pytest.fixture(
    params=[
        "echo",
        "scripted",
        "transformers",
        "vllm-recorded",
        pytest.param("vllm-real", marks=pytest.mark.vllm),
    ],
)
async def bench(
    request: pytest.FixtureRequest, tiny_model: Path, tiny_adapters: dict[str, Path]
) -> AsyncIterator[Bench]:
    from ratchet.models.loading import load_language_model
    from ratchet.models.tokenization import load_tokenizer
    from services.agent.engines.scripted import Script, ScriptedEngine
    from services.agent.engines.scripted import Turn as ScriptTurn
    from services.agent.engines.transformers_engine import TransformersEngine
    from services.agent.engines.vllm_engine import VllmEngine
    from tests.ratchet.models.tiny_model import MAX_POSITIONS

    kind = request.param
    server = RecordedVllm(real_server() if kind == "vllm-real" else None)
    if kind == "echo":
        engine: Engine = EchoEngine()
    elif kind == "scripted":
        script = Script(turns=(ScriptTurn(heard="", says=("yes", "no")),))
        engine = ScriptedEngine(script, REPOSITORY / "examples" / "played-model", Random(5))
    elif kind == "transformers":
        make = partial(TransformersEngine, partial(load_language_model, str(tiny_model)), seed=5)
        engine = EngineProcess(make, max_batch=64, begin=begin_here)
    else:
        engine = VllmEngine(server.client(), model="base", tokenizer=load_tokenizer(tiny_model), health_period_s=60)
    await engine.start()
    yield Bench(engine, tiny_model, MAX_POSITIONS, tiny_adapters, tokens=kind not in ("echo", "scripted"))
    await engine.stop()
    if kind.startswith("vllm"):
        await server.stop()
