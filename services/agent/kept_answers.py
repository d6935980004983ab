"""Answers to calls that have a name, kept for a client that was killed and asks again.

A client that asks under a name gets what was sampled under it, from the first token that it does not have, and then the
rest as it comes: so nothing is sampled twice. What has a name is sampled to its end though the client has gone, unless
it is called off. Kept in memory, up to a number of tokens: the oldest whole answers go first.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from pydantic_core import to_json

from ratchet.service.errors import EngineError
from schemas.api.generate import IdsGiven, TokensTold
from schemas.messages.response import FinishReason
from services.agent import metrics

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
        """Nobody asks for it again: end its sampling and forget it."""
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
