"""An engine for the recorder that answers by a script and remembers what it was asked."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence

from ratchet.rollouts.engine import KeepsNothing, Token
from ratchet.service.errors import EngineError
from schemas.messages.work import Grammar


class ScriptedEngine(KeepsNothing):
    """Answers each prompt with what `script` makes of it; keeps what it saw and sampled.

    No two tokens have the same log-probability. `gate`: it waits there behind each token; `asked` says how often.
    """

    def __init__(self, script: Callable[[Sequence[int]], Sequence[int]], context: int = 8192) -> None:
        self.context = context
        self.trouble: str | None = None
        self.seen: list[tuple[int, ...]] = []
        self.stops: list[tuple[str, ...]] = []
        self.grammars: list[Grammar | None] = []
        self.calls: list[str | None] = []
        self.sampled: list[list[Token]] = []
        self.closed = 0
        self.asked = asyncio.Semaphore(0)
        self.gate = asyncio.Event()
        self.gate.set()
        self._script = script
        self.fails_after: int | None = None
        self._numbers = itertools.count(1)

    async def sample(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        stop: Sequence[str] = (),
        grammar: Grammar | None = None,
        call: str | None = None,
    ) -> AsyncGenerator[Token, None]:
        self.calls.append(call)
        self.grammars.append(grammar)
        self.stops.append(tuple(stop))
        self.seen.append(tuple(prompt_ids))
        self.asked.release()
        sampled: list[Token] = []
        self.sampled.append(sampled)
        try:
            for token in self._script(prompt_ids)[:max_tokens]:
                sampled.append(Token(token, -next(self._numbers) / 1024))
                yield sampled[-1]
                if len(sampled) == self.fails_after:
                    self.trouble = "the engine is gone"
                    raise EngineError(self.trouble)
                await asyncio.sleep(0)  # as over a network: whoever waits for a token has a turn before the next
                await self.gate.wait()
        finally:
            self.closed += 1
