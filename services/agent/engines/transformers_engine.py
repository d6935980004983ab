"""A model in this process: transformers on the CPU or one GPU, several adapters in one batch through PEFT.

Leaves out continuous batching: a batch ends with its longest answer; for more, use a vLLM server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import torch

from ratchet.models.loading import LanguageModel, load_language_model
from ratchet.service.errors import EngineError
from schemas.messages.base import BaseModelIdentity
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.local_generation import LocalGenerator
from services.agent.engines.peft_adapters import PeftAdapters
from services.agent.settings import AgentSettings


class TransformersEngine:
    """`load` gives the model; it is called once, by `start`. `seed` None: samples differ from start to start."""

    def __init__(self, load: Callable[[], LanguageModel], *, seed: int | None = None) -> None:
        self._load = load
        self._seed = seed
        self._loaded: tuple[LanguageModel, PeftAdapters, LocalGenerator] | None = None
        self.on_step: Callable[[], None] = lambda: None

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

    def start(self) -> None:
        language_model = self._load()
        if self._seed is not None:
            torch.manual_seed(self._seed)
        adapters = PeftAdapters(language_model.model)
        self._loaded = language_model, adapters, LocalGenerator(language_model, adapters)

    @property
    def _parts(self) -> tuple[LanguageModel, PeftAdapters, LocalGenerator]:
        if self._loaded is None:
            raise EngineError("the model is not loaded: start the engine first")
        return self._loaded

    @property
    def identity(self) -> str:
        return f"transformers {self._parts[0].identity}"

    @property
    def base(self) -> BaseModelIdentity:
        identity = self._parts[0].identity
        return BaseModelIdentity(name=identity.name, revision=identity.revision)

    def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        return self._parts[2].answer(requests, self.on_step)

    def load_adapter(self, name: str, path: Path) -> None:
        self._parts[1].load(name, path)

    def unload_adapter(self, name: str) -> None:
        self._parts[1].unload(name)
