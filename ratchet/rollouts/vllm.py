"""A vLLM server as the recorder's engine: its text completions, ids in and ids out, never its chat endpoint."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import httpx
from pydantic import ValidationError
from pydantic_core import to_json

from ratchet.openai.completions import TextChunk
from ratchet.openai.transport import ServerUnavailable, error_of
from ratchet.rollouts.engine import JSON, KeepsNothing, Token, lines
from schemas.messages.work import Grammar, Sampling

DATA, DONE = b"data: ", b"[DONE]"
CONNECT_S = 5.0
SILENT_S = 600.0
"""A server that is busy may take so long for its next token, whatever its client waits for otherwise."""
TIMEOUT = httpx.Timeout(CONNECT_S, read=SILENT_S)


class VllmTokens(KeepsNothing):
    """`http` has the server's root for its base URL. `model` is the name of the model or adapter that answers, all
    calls of a rollout the same; `context` the tokens it holds. A stream that is closed early ends the generation."""

    def __init__(self, http: httpx.AsyncClient, *, model: str, context: int, sampling: Sampling) -> None:
        self.context = context
        self.trouble: str | None = None
        self._http = http
        self._model = model
        self._sampling = sampling

    async def sample(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        stop: Sequence[str] = (),
        grammar: Grammar | None = None,
        call: str | None = None,
    ) -> AsyncGenerator[Token, None]:
        """Raises ServerUnavailable, RequestRefused, ContextTooLong."""
        body = {
            "model": self._model,
            "prompt": prompt_ids,
            "max_tokens": min(max_tokens, self._sampling.max_tokens),
            "temperature": self._sampling.temperature,
            "top_p": self._sampling.top_p,
            "top_k": self._sampling.top_k,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "logprobs": 0,
            "return_token_ids": True,
            "stream": True,
        }
        body |= stopping(stop, control_tokens=True) | holding(grammar)
        self.trouble = None
        where = f"{str(self._http.base_url).rstrip('/')}/v1/completions"
        try:
            async with self._http.stream(
                "POST", "/v1/completions", content=to_json(body), headers=JSON, timeout=TIMEOUT
            ) as reply:
                if not reply.is_success:
                    said = (await reply.aread()).decode(errors="replace")
                    raise error_of(where, reply.status_code, said, setting="the server's address")
                async for token in _tokens(lines(reply), where):
                    yield token
        except httpx.HTTPError as error:
            self.trouble = f"{where} broke off ({error or type(error).__name__})"
            raise ServerUnavailable(self.trouble) from error
        except ServerUnavailable as error:
            self.trouble = str(error)
            raise


def stopping(words: Sequence[str] | None, *, control_tokens: bool) -> dict[str, Any]:
    """Return fields that name strings to end at. `control_tokens`: look for them in a text that shows those, too."""
    return {"stop": list(words), "skip_special_tokens": not control_tokens} if words else {}


def holding(grammar: Grammar | None) -> dict[str, Any]:
    """Return the field that holds an answer to a grammar."""
    return {} if grammar is None else {"structured_outputs": {"grammar": grammar.text}}


async def _tokens(told: AsyncIterator[bytes], where: str) -> AsyncGenerator[Token, None]:
    async for line in told:
        data = line.removeprefix(DATA)
        if not line.startswith(DATA) or data == DONE:
            continue
        try:
            chunk = TextChunk.model_validate_json(data)
        except ValidationError:
            raise ServerUnavailable(f"{where} answered with no chunk of a completion: {_printable(data)}") from None
        for choice in chunk.choices:
            logprobs = choice.logprobs.token_logprobs if choice.logprobs else ()
            if choice.token_ids is None or len(logprobs) != len(choice.token_ids):
                raise ServerUnavailable(f"{where} gives no ids with log-probabilities: is it vLLM? {_printable(data)}")
            for token, logprob in zip(choice.token_ids, logprobs, strict=True):
                if logprob is None:
                    raise ServerUnavailable(f"{where} gave no log-probability for token {token}")
                yield Token(token, logprob)


def _printable(data: bytes) -> str:
    return data[:200].decode(errors="replace")
