"""The internal routes: a call of a conversation, by token ids, answered with just the adapter that the caller names.

Who records a rollout asks here, with the arm of its Work; so an adapter is loaded as for a Work. Not for users: what it
is given and says may change with any version, and it is in no OpenAPI document.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from ratchet.concurrency.gathered import in_batches
from ratchet.http.operation import OPERATOR, RUNNER, operation
from ratchet.http.problem import Problem
from ratchet.http.work import while_connected
from ratchet.service.errors import EngineError
from schemas.api.generate import IdsGiven, ServedModel, TokensTold
from schemas.messages.work import Arm, Sampling
from services.agent import metrics
from services.agent.adapter_cache import AdapterCache
from services.agent.engines.engine import Engine, IdsRequest, StreamsIds
from services.agent.kept_answers import KeptAnswers

LINES = "application/x-ndjson"


class ConversationCalls:
    """Shares the engine's batches with the tasks of the queue. `served`: of the engine, once it has started.

    Calls that have a name are kept for a client that asks again (kept_answers.py)."""

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
        """Nobody wants the answer to a call with this name any more."""
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
