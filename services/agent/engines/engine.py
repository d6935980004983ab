"""The engine as the agent sees it: prompts in, groups of samples out. Knows no bus and no messages but their values.

An engine that takes long for an answer and can show its steps is also a `ratchet.bus.in_hand.Stepwise`.
A new engine is a class with `from_settings`, registered by name in an entry point group: Engine in `ratchet.engines`,
BatchEngine or ContinuousEngine in `ratchet.batch_engines`; own_process/ makes an Engine of those.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from ratchet.service.errors import EngineError
from schemas.messages.base import BaseModelIdentity
from schemas.messages.response import FinishReason, Sample
from schemas.messages.task import AnswerFormat, Prompt, Tool
from schemas.messages.work import Grammar, Sampling
from services.agent.settings import AgentSettings


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A prompt, how often and how to sample it, and the adapter to answer with (None: the base model).

    Where requests wait, the higher priority goes first. `tools`: what the model is told it may ask for.
    `token_texts`: each sample says the text of each of its tokens. `format`: the form that answers must have.
    """

    prompt: Prompt
    sampling: Sampling
    adapter: str | None = None
    priority: int = 0
    tools: tuple[Tool, ...] = ()
    token_texts: bool = False
    format: AnswerFormat | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """`samples` has `sampling.n` entries. `prompt_ids` is None for an engine without tokens. `grammar`: that samples
    were held to."""

    samples: tuple[Sample, ...]
    prompt_ids: tuple[int, ...] | None = None
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True)
class IdsRequest:
    """A prompt as token ids. `keep`: the next prompt is likely to begin with this one and its answer, as the turns of a
    conversation do. `begun`: so many ids at its end are the beginning of the answer under `sampling.grammar`.
    """

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    adapter: str | None = None
    priority: int = 0
    keep: bool = False
    begun: int = 0


@dataclass(frozen=True, slots=True)
class TokenPiece:
    """New tokens of a sample with the logs of the probabilities they were sampled with; the last piece says why it
    ended."""

    sample: int
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason | None = None


class Engine(Protocol):
    """All methods are called from one event loop, and none blocks it."""

    async def start(self) -> None:
        """Get the model ready. Raises EngineError with the reason if there is none."""

    async def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        """One answer a request, in order; a request that can't be answered has its error there and harms no other.

        Called as often and as concurrently as requests come.
        PromptTooLong and AdapterError as values: no retry mends them. Any other EngineError may pass.
        """

    async def load_adapter(self, name: str, path: Path) -> None:
        """Make an adapter folder (PEFT's format) available under a name that never means another. Raises AdapterError.

        Loading a name that is already there changes nothing.
        """

    async def unload_adapter(self, name: str) -> None:
        """Forget an adapter; requests already running with it end well. A name that is not there is no error."""

    def adapters(self) -> frozenset[str]:
        """Names that can be asked for."""

    @property
    def identity(self) -> str:
        """Kind of engine, model and revision, for the log: `transformers small@1f2e3d4c5b6a`. Known after `start`."""

    @property
    def base(self) -> BaseModelIdentity | None:
        """The base model, for comparing with what an adapter was trained on; None where it can't be told."""

    def trouble(self) -> str | None:
        """Return why it can't generate now, as a sentence; None if it can."""

    async def stop(self) -> None:
        """Release the model; what still runs is cut short."""


@runtime_checkable
class StreamsIds(Protocol):
    """An Engine that takes prompts as token ids, too, and tells tokens as they are sampled: for conversations."""

    @property
    def context(self) -> int | None:
        """Tokens that prompt and answer may have together; None where it takes no ids after all."""

    def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
        """The last piece of a sample says why it ended. Closed early, no more is generated. Raises EngineError."""


class EngineKind(Engine, Protocol):
    """A registered kind of engine."""

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Self: ...


class BatchEngine(Protocol):
    """Plain, blocking code: one call at a time, in a process of its own, which ends at any moment.

    What the methods promise is what Engine says of those of the same name. One that has the attribute `on_step` gets a
    function there, to be called at each step of `generate`: steps are what tells slow from hung. The sentences of an
    attribute `remarks` are logged once it has started.
    """

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Self: ...

    def start(self) -> None: ...

    def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        """If it raises, the requests are given to it again one by one, so that only the guilty one fails."""

    def load_adapter(self, name: str, path: Path) -> None: ...

    def unload_adapter(self, name: str) -> None: ...

    @property
    def identity(self) -> str: ...

    @property
    def base(self) -> BaseModelIdentity | None: ...


@runtime_checkable
class Continuous(Protocol):
    """Takes requests while it generates, under numbers of the caller's; its own way to choose who enters when."""

    def submit(self, number: int, request: GenerationRequest) -> None: ...

    def cancel(self, number: int) -> None:
        """Forget a request wherever it is; one that is answered is no error."""

    def step(self) -> Sequence[tuple[int, Generation | EngineError]]:
        """Go on a little; the answers that are ready now. With nothing to do it returns at once."""

    @property
    def busy(self) -> bool:
        """Something was asked and is not answered."""

    @property
    def rows(self) -> int:
        """Samples that are generated at once now."""


TokenListener = Callable[[int, Sequence[int], Sequence[float]], None]
"""Gets the number of a sample, its new ids and their log-probabilities."""


class ContinuousEngine(BatchEngine, Continuous, Protocol):
    """A BatchEngine that needs no batches: in its process it is given what comes at once."""


@runtime_checkable
class TakesIds(Protocol):
    """A ContinuousEngine that takes prompts as token ids, too, and tells tokens as they come."""

    @property
    def context(self) -> int:
        """Tokens that prompt and answer may have together. Known after `start`."""

    def submit_ids(self, number: int, request: IdsRequest, on_tokens: TokenListener | None = None) -> None:
        """`step` answers it; what was told before is in the answer, too."""
