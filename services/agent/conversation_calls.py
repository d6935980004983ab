"""The internal routes: a call of a conversation, by token ids, answered with just the adapter that the caller names.

Who records a rollout asks here, with the arm of its Work; so an adapter is loaded as for a Work. Not for users: what it
is given and says may change with any version, and it is in no OpenAPI document.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from ratchet.concurrency.keyed import in_batches
from ratchet.http.operation import OPERATOR, RUNNER, operation
from ratchet.http.problem import Problem
from ratchet.http.work import while_connected
from ratchet.service.errors import EngineError
from schemas.api.generate import IdsGiven, ServedModel, TokensTold
from schemas.messages.response import FinishReason
from schemas.messages.work import Arm, Sampling
from services.agent import metrics
from services.agent.adapter_cache import AdapterCache
from services.agent.engines.engine import Engine, IdsRequest, StreamsIds

MOST_TOKENS = 200_000
CALLED_OFF = "the call was called off"

Sample = Callable[[IdsGiven], AsyncGenerator[TokensTold, None]]


@dataclass(eq=False)
class _Answer:
    """`asked`: the sum of all that it depends on but the prompt; `prompt` that of the `begins` ids before it."""

    asked: str
    prompt: str
    begins: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None
    failure: BaseException | None = None
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    sampling: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """True once it grows no more."""
        return self.finish is not None or self.failure is not None

    def had(self, given: IdsGiven) -> int | None:
        """Return how many of its tokens the client has; None where this is no answer to what it asks."""
        has = list(given.prompt_ids[self.begins :])
        fits = self.asked == _sum_asked(given) and self.prompt == _sum(given.prompt_ids[: self.begins])
        return len(has) if fits and self.failure is None and self.ids[: len(has)] == has else None

    def grow(self) -> None:
        """Wake those who wait for more."""
        grown, self.grown = self.grown, asyncio.Event()
        grown.set()


class KeptAnswers:
    def __init__(self, sample: Sample, most_tokens: int = MOST_TOKENS) -> None:
        """`sample` asks the engine."""
        self._sample = sample
        self._most_tokens = most_tokens
        self._answers: dict[str, _Answer] = {}
        """They are kept by the names of their calls; the one that was asked for last is at the end."""
        self._whole_tokens = 0
        self._sampling: set[asyncio.Task[None]] = set()

    async def answer(self, call: str, given: IdsGiven) -> AsyncGenerator[TokensTold, None]:
        """Yield the call's answer behind what the client has. Raises what the engine raises."""
        kept = self._take(call)
        at = kept.had(given) if kept is not None else None
        if kept is None or at is None:
            kept, at = self._begin(call, given), 0
        else:
            metrics.tokens_given_again.inc(len(kept.ids) - at)
        self._answers[call] = kept
        self._whole_tokens += len(kept.ids) if kept.is_over else 0
        while True:
            if len(kept.ids) > at or kept.finish is not None:
                ids, logprobs, finish = tuple(kept.ids[at:]), tuple(kept.logprobs[at:]), kept.finish
                yield TokensTold(ids=ids, logprobs=logprobs, finish_reason=finish)
                at += len(ids)
                if finish is not None:
                    return
            elif kept.failure is not None:
                raise kept.failure
            else:
                await kept.grown.wait()

    def _begin(self, call: str, given: IdsGiven) -> _Answer:
        kept = _Answer(_sum_asked(given), _sum(given.prompt_ids), len(given.prompt_ids))
        kept.sampling = asyncio.create_task(self._read(call, kept, given))
        self._sampling.add(kept.sampling)
        kept.sampling.add_done_callback(self._sampling.discard)
        return kept

    def _take(self, call: str) -> _Answer | None:
        """Return it, no longer kept."""
        kept = self._answers.pop(call, None)
        if kept is not None and kept.is_over:
            self._whole_tokens -= len(kept.ids)
        return kept

    async def _read(self, call: str, kept: _Answer, given: IdsGiven) -> None:
        try:
            async with aclosing(self._sample(given)) as coming:
                async for told in coming:
                    kept.ids += told.ids
                    kept.logprobs += told.logprobs
                    kept.finish = told.finish_reason
                    kept.grow()
            if kept.finish is None:
                kept.failure = EngineError("the engine ended its answer in the middle")
        except asyncio.CancelledError:
            kept.failure = EngineError(CALLED_OFF)
        except Exception as error:  # it is raised to whoever waits for the answer
            kept.failure = error
        finally:
            kept.grow()
            if self._answers.get(call) is kept:
                self._whole_tokens += len(kept.ids)
                self._drop_oldest()
                if kept.failure is not None:
                    self._take(call)

    def _drop_oldest(self) -> None:
        for name, one in list(self._answers.items()):
            if self._whole_tokens <= self._most_tokens:
                break
            if one.is_over:
                self._take(name)

    def call_off(self, call: str) -> None:
        """End the sampling of a call that nobody asks for again, and forget it."""
        kept = self._take(call)
        if kept is not None and kept.sampling is not None:
            kept.sampling.cancel()

    async def close(self) -> None:
        """End all sampling."""
        for task in self._sampling:
            task.cancel()
        await asyncio.gather(*self._sampling, return_exceptions=True)


def _sum(ids: tuple[int, ...]) -> str:
    return hashlib.sha256(to_json(ids)).hexdigest()


def _sum_asked(given: IdsGiven) -> str:
    """Return the sum of what an answer depends on. Where a client has tokens of it, it asks for so many fewer."""
    ends = len(given.prompt_ids) + given.sampling.max_tokens
    asked = given.model_dump(exclude={"prompt_ids", "begun", "priority", "call"})
    asked["sampling"]["max_tokens"] = ends
    return hashlib.sha256(to_json(asked)).hexdigest()


LINES = "application/x-ndjson"


class ConversationCalls:
    """Shares the engine's batches with the tasks of the queue. `served`: of the engine, once it has started.

    Calls that have a name are kept for a client that asks again (KeptAnswers)."""

    def __init__(self, served: Callable[[], ServedModel], engine: Engine, cache: AdapterCache) -> None:
        self._served = served
        self._engine = engine
        self._cache = cache
        self._kept = KeptAnswers(self._sample)

    def model(self) -> ServedModel:
        """Raises EngineError where the engine is away."""
        if trouble := self._engine.trouble():
            raise EngineError(trouble)
        return self._served()

    def answer(self, given: IdsGiven) -> AsyncGenerator[TokensTold, None]:
        """Yield the answer as it is sampled.

        Raises AdapterError, EngineError, and Problem for an engine that takes no ids.
        """
        return self._sample(given) if given.call is None else self._kept.answer(given.call, given)

    def call_off(self, call: str) -> None:
        """Drop the call of this name: nobody wants its answer any more."""
        self._kept.call_off(call)

    async def close(self) -> None:
        await self._kept.close()

    async def _sample(self, given: IdsGiven) -> AsyncGenerator[TokensTold, None]:
        if self.model().context is None or not isinstance(self._engine, StreamsIds):
            raise Problem(409, "No token ids", f"{self._engine.identity} can't be asked with token ids", "no-ids")
        sampling = Sampling.model_validate(given.sampling.model_dump() | {"grammar": given.grammar})
        arm = Arm(adapter_version=given.adapter_version, adapter_sha256=given.adapter_sha256, sequence=0)
        async with self._cache.acquire(arm) as adapter:
            name = adapter.name if adapter else None
            request = IdsRequest(given.prompt_ids, sampling, name, given.priority, True, given.begun)
            async with aclosing(self._engine.generate_ids(request)) as pieces:
                async for piece in pieces:
                    metrics.tokens_sampled.inc(len(piece.ids))
                    yield TokensTold(ids=piece.ids, logprobs=piece.logprobs, finish_reason=piece.finish_reason)


def conversation_router(calls: ConversationCalls) -> APIRouter:
    router = APIRouter(prefix="/internal", include_in_schema=False)

    @router.post("/generate")
    @operation(OPERATOR, RUNNER)
    async def generate(request: Request, given: IdsGiven) -> StreamingResponse:
        """A line of JSON for what is new, of one token or several; refused before the first if at all. A client that
        leaves ends it, unless it gave the call a name."""
        if given.sampling.n != 1:
            raise Problem(422, "Not valid", "a call of a conversation has one answer: n must be 1", "invalid")
        answer = calls.answer(given)
        first = await while_connected(request, _first(answer))
        return StreamingResponse(_lines(first, answer), media_type=LINES)

    @router.delete("/generate/{call}", status_code=204)
    @operation(OPERATOR, RUNNER)
    async def call_off(call: str) -> None:
        calls.call_off(call)

    @router.get("/model")
    @operation(OPERATOR, RUNNER)
    async def model() -> ServedModel:
        return calls.model()

    return router


async def _first(answer: AsyncGenerator[TokensTold, None]) -> TokensTold:
    return await anext(answer)


async def _lines(first: TokensTold, rest: AsyncGenerator[TokensTold, None]) -> AsyncIterator[bytes]:
    async with aclosing(rest):
        yield _line(first)
        try:
            async with aclosing(in_batches(rest)) as many:
                async for told in many:
                    yield _line(_join_tokens(told))
        except EngineError as error:
            yield _line(TokensTold(error=str(error)))


def _join_tokens(told: Sequence[TokensTold]) -> TokensTold:
    ids = tuple(token for one in told for token in one.ids)
    logprobs = tuple(logprob for one in told for logprob in one.logprobs)
    return TokensTold(ids=ids, logprobs=logprobs, finish_reason=told[-1].finish_reason)


def _line(told: TokensTold) -> bytes:
    return told.model_dump_json(exclude_defaults=True).encode() + b"\n"
