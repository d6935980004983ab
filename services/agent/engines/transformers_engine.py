"""An engine in this process: transformers on the CPU or one GPU, several adapters in one batch through PEFT.

All work on the model happens in one thread of its own, so that the event loop never waits for it. Takes one batch at a
time: own_process/ makes them. Leaves out continuous batching: a batch ends with its longest answer; for more, use a
vLLM server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import torch

from schemas.adapter_card import BaseModelIdentity
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.local_generation import LocalGenerator
from services.agent.engines.peft_adapters import PeftAdapters
from services.agent.settings import AgentSettings
from services.errors import EngineError
from services.local_model import LanguageModel, ModelIdentity, load_language_model

T = TypeVar("T")


class TransformersEngine:
    """`load` gives the model; it is called once, by `start`. `seed` None: samples differ from start to start."""

    def __init__(self, load: Callable[[], LanguageModel], *, seed: int | None = None) -> None:
        self._load = load
        self._seed = seed
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="generation")
        self._interrupted = threading.Event()
        self._started: tuple[LocalGenerator, PeftAdapters, ModelIdentity] | None = None

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Self:
        load = partial(
            load_language_model,
            settings.agent_model,
            settings.agent_model_revision,
            dtype=settings.agent_dtype,
            device=settings.agent_device,
            threads=settings.agent_threads,
        )
        return cls(load, seed=settings.agent_seed)

    async def start(self) -> None:
        self._started = await self._in_thread(self._begin)

    def _begin(self) -> tuple[LocalGenerator, PeftAdapters, ModelIdentity]:
        language_model = self._load()
        if self._seed is not None:
            torch.manual_seed(self._seed)
        adapters = PeftAdapters(language_model.model)
        return LocalGenerator(language_model, adapters, self._interrupted), adapters, language_model.identity

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @property
    def _parts(self) -> tuple[LocalGenerator, PeftAdapters, ModelIdentity]:
        if self._started is None:
            raise EngineError("the model is not loaded: start the engine first")
        return self._started

    @property
    def identity(self) -> str:
        return f"transformers {self._parts[2]}"

    @property
    def base(self) -> BaseModelIdentity:
        identity = self._parts[2]
        return BaseModelIdentity(name=identity.name, revision=identity.revision)

    async def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        generator, _, _ = self._parts
        return await self._in_thread(partial(generator.answer, requests))

    async def load_adapter(self, name: str, path: Path) -> None:
        _, adapters, _ = self._parts
        await self._in_thread(partial(adapters.load, name, path))

    async def unload_adapter(self, name: str) -> None:
        _, adapters, _ = self._parts
        await self._in_thread(partial(adapters.unload, name))

    def adapters(self) -> frozenset[str]:
        return self._started[1].names if self._started else frozenset()

    def trouble(self) -> str | None:
        return None if self._started else "the model is not loaded yet"

    async def stop(self) -> None:
        self._interrupted.set()
        self._thread.shutdown(wait=False, cancel_futures=True)
