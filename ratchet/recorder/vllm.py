"""A vLLM server as the recorder's engine: its text completions, ids in and ids out, never its chat endpoint."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import httpx
from pydantic import ValidationError

from ratchet.openai.completions import TextChunk
from ratchet.openai.errors import ServerUnavailable, error_of
from ratchet.recorder.engine import Token
from schemas.messages.work import Sampling

DATA, DONE = "data: ", "[DONE]"


class VllmTokens:
    """`http` has the server's root for its base URL. `model` is the name of the model or adapter that answers, all
    calls of a rollout the same; `context` the tokens it holds. A stream that is closed early ends the generation."""

    def __init__(self, http: httpx.AsyncClient, *, model: str, context: int, sampling: Sampling) -> None:
        self.context = context
        self.trouble: str | None = None
        self._http = http
        self._model = model
        self._sampling = sampling

    async def sample(self, prompt_ids: Sequence[int], max_tokens: int) -> AsyncGenerator[Token, None]:
        """Raises ServerUnavailable, RequestRefused, ContextTooLong."""
        body = {
            "model": self._model,
            "prompt": list(prompt_ids),
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
        self.trouble = None
        where = f"{str(self._http.base_url).rstrip('/')}/v1/completions"
        try:
            async with self._http.stream("POST", "/v1/completions", json=body) as reply:
                if not reply.is_success:
                    said = (await reply.aread()).decode(errors="replace")
                    raise error_of(where, reply.status_code, said, setting="the server's address")
                async for token in _tokens(reply.aiter_lines(), where):
                    yield token
        except httpx.HTTPError as error:
            self.trouble = f"{where} broke off ({error or type(error).__name__})"
            raise ServerUnavailable(self.trouble) from error
        except ServerUnavailable as error:
            self.trouble = str(error)
            raise


async def _tokens(lines: AsyncIterator[str], where: str) -> AsyncGenerator[Token, None]:
    async for line in lines:
        data = line.removeprefix(DATA)
        if not line.startswith(DATA) or data == DONE:
            continue
        try:
            chunk = TextChunk.model_validate_json(data)
        except ValidationError:
            raise ServerUnavailable(f"{where} answered with no chunk of a completion: {data[:200]}") from None
        for choice in chunk.choices:
            logprobs = choice.logprobs.token_logprobs if choice.logprobs else ()
            if choice.token_ids is None or len(logprobs) != len(choice.token_ids):
                raise ServerUnavailable(
                    f"{where} gives no ids with log-probabilities: is it vLLM? {json.dumps(data[:200])}"
                )
            for token, logprob in zip(choice.token_ids, logprobs, strict=True):
                if logprob is None:
                    raise ServerUnavailable(f"{where} gave no log-probability for token {token}")
                yield Token(token, logprob)
