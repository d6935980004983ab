"""The recorder's view of an engine: token ids in, a stream of sampled tokens out.

Sampling (temperature and the like) is the engine's own: that of the Work, whatever a client asks for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, Protocol

import httpx

from schemas.messages.work import Grammar

JSON = {"content-type": "application/json"}
"""Headers of a request whose ids were written by pydantic, four times as fast as httpx writes them."""


class Token(NamedTuple):
    id: int
    logprob: float


class TokenEngine(Protocol):
    @property
    def context(self) -> int:
        """Tokens of prompt and answer together."""

    @property
    def trouble(self) -> str | None:
        """Reason why it did not answer when it was asked last; None where it did."""

    def sample(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        stop: Sequence[str] = (),
        grammar: Grammar | None = None,
        call: str | None = None,
    ) -> AsyncGenerator[Token, None]:
        """Samples under the grammar, if there is one. Ends behind a token that ends an answer, or after so many; where
        it can, behind the one with which a string of `stop` was whole (stops.py), and who asks looks for them all the
        same. Closed early, it samples no more. `call`: its name, under which an engine that can keeps the answer for a
        process that comes after one that was killed.

        Raises EngineError where the engine fails.
        """

    async def call_off_left(self) -> None:
        """Call off the answers that were closed early: nobody asks for them again."""


class KeepsNothing:
    """An engine that keeps no answer that was closed early."""

    async def call_off_left(self) -> None:
        """Do nothing."""


async def lines(reply: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a body that streams, as they come, without their ends; the last one also where it has none.
    As bytes, which JSON's reader takes at less cost than text.

    Raises httpx.HTTPError.
    """
    had = b""
    async for part in reply.aiter_bytes():
        *whole, had = (had + part).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")
    if had:
        yield had
