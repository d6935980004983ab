"""The roles of a rollout that models of other providers play: asked by the recorder, recorded as text without ids.

So no key enters a sandbox, and nothing that such a model said can be trained on by ratio. A reply is a step of the
rollout: a program that runs again is answered from it, and nobody pays twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ratchet.dialects.chat import write_message
from ratchet.dialects.dialect import ModelRequest, Parsed
from ratchet.openai.transport import ServerUnavailable
from ratchet.rollouts.kept_steps import Diverged, ForeignReply, KeptSteps, key_of
from ratchet.rollouts.providers import ForeignClient, Reply
from ratchet.rollouts.rollout import MOST_TOKENS, Budget
from ratchet.service.prices import AgentPrices, cost
from schemas.messages.response import FinishReason, ForeignPart, ToolCall, Turn
from schemas.messages.result import TaskUsage


@dataclass(frozen=True, slots=True)
class ForeignAnswer:
    """A whole answer, as dialects write it."""

    reply: Reply
    key: str

    @property
    def parsed(self) -> Parsed:
        return Parsed(self.reply.content, self.reply.reasoning, tuple(self.reply.calls))

    @property
    def call_ids(self) -> Sequence[str]:
        return [f"call_{key_of(self.key, number)[:24]}" for number in range(len(self.reply.calls))]

    @property
    def finish(self) -> FinishReason | None:
        return self.reply.finish

    @property
    def stopped_at(self) -> str | None:
        return None

    @property
    def prompt_tokens(self) -> int:
        return self.reply.prompt_tokens

    @property
    def sampled_tokens(self) -> int:
        return self.reply.sampled_tokens

    @property
    def token_logprobs(self) -> Sequence[tuple[str, float]]:
        return ()


class Spending(Protocol):
    """The account of a profile with other providers."""

    def refusal(self) -> str | None:
        """Return why nothing more may be spent now; None where it may."""

    def add(self, tokens: int, cost_micros: int) -> None:
        """Note what a call took."""


class ForeignRole:
    """A role in one rollout. `prices`: of its model, if they are known."""

    def __init__(
        self,
        role: str,
        client: ForeignClient,
        budget: Budget,
        steps: KeptSteps | None,
        prices: AgentPrices | None,
        spending: Spending | None = None,
    ) -> None:
        self.role = role
        self.model = client.of.name
        self.trouble: str | None = None
        self._client = client
        self._budget = budget
        self._steps = steps
        self._prices = prices
        self._spending = spending
        self._answered: dict[str, Reply] = {}
        self._replies: list[Reply] = []
        self._turns: list[Turn] = []
        self._seen: list[Turn] = []
        self._asking = asyncio.Lock()

    async def answer(self, asked: ModelRequest) -> AsyncGenerator[ForeignAnswer, None]:
        """Yield the whole answer. Raises Refused, ModelServerError, EngineError."""
        key = key_of("foreign", self.role, self.model, *_key_parts(asked))
        async with self._asking:  # one at a time, so that a request that is sent again is answered once
            reply = self._answered.get(key) if asked.retry else None
            if reply is None:
                reply = await self._reply(asked, key)
                self._note(asked, reply, ForeignAnswer(reply, key))
        yield ForeignAnswer(reply, key)

    async def _reply(self, asked: ModelRequest, key: str) -> Reply:
        try:
            kept = None if self._steps is None else await self._steps.take(ForeignReply, key)
            if kept is None:
                if self._spending is not None and (why := self._spending.refusal()) is not None:
                    raise ServerUnavailable(why)
                most = min(asked.max_tokens or MOST_TOKENS, self._budget.tokens_left or MOST_TOKENS)
                kept = ForeignReply(key, await self._client.ask(asked, most))
                if self._spending is not None:
                    usage = _usage([kept.reply])
                    self._spending.add(usage.prompt_tokens + usage.sampled_tokens, self._cost(usage) or 0)
                if self._steps is not None:
                    self._steps.add(kept)
        except Diverged as error:
            self._budget.end(str(error))
            raise
        except ServerUnavailable as error:
            self.trouble = str(error)
            raise
        self.trouble = None
        self._budget.take_tokens(kept.reply.sampled_tokens)
        self._answered[key] = kept.reply
        return kept.reply

    def _note(self, asked: ModelRequest, reply: Reply, answer: ForeignAnswer) -> None:
        """Keep what was said, without the turns that the call before this one had."""
        turns, said = [_turn(one) for one in asked.messages], _turn(write_message(answer))
        has_all = turns[: len(self._seen)] == self._seen
        self._turns += [*turns[len(self._seen) if has_all else 0 :], said]
        self._seen = [*turns, said]
        self._replies.append(reply)

    def part(self) -> ForeignPart:
        """Return what it said and took."""
        usage = _usage(self._replies)
        return ForeignPart(
            role=self.role,
            model=self.model,
            calls=len(self._replies),
            prompt_tokens=usage.prompt_tokens,
            sampled_tokens=usage.sampled_tokens,
            cost_micros=self._cost(usage),
            turns=tuple(self._turns),
        )

    def _cost(self, usage: TaskUsage) -> int | None:
        return None if self._prices is None else cost(usage, self._prices)


def _usage(replies: Sequence[Reply]) -> TaskUsage:
    return TaskUsage(
        prompt_tokens=sum(one.prompt_tokens for one in replies),
        sampled_tokens=sum(one.sampled_tokens for one in replies),
    )


def _key_parts(asked: ModelRequest) -> tuple[Any, ...]:
    form = asked.format and asked.format.model_dump()
    return asked.messages, asked.tools, asked.calls, asked.max_tokens, asked.stop, asked.one_call, form


def _turn(message: Mapping[str, Any]) -> Turn:
    content = message.get("content") or ""
    calls = [one["function"] for one in message.get("tool_calls") or ()]
    return Turn(
        role=str(message["role"]),
        content=content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content),
        reasoning=message.get("reasoning_content"),
        tool_calls=tuple(ToolCall(name=str(one["name"]), arguments=str(one.get("arguments", ""))) for one in calls),
    )
