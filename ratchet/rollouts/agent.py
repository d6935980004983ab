"""A fleet's agent as the recorder's engine: its internal route, ids in and ids out, with just the adapter of a Work.

An agent that goes away in the middle of an answer is waited for, and asked to go on behind what it sampled: that is the
same policy in the same context. So the kill of an agent costs a rollout time, and nothing else.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator, Collection, Generator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from pydantic import ValidationError
from pydantic_core import to_json

from ratchet.bus.retry_policy import pause_s
from ratchet.conversation.template import ChatTemplate
from ratchet.openai.transport import ContextTooLong, ServerUnavailable, StreamingTransport
from ratchet.rollouts.engine import JSON, Token, lines
from ratchet.service import failpoint
from ratchet.service.errors import EngineError
from schemas.api.generate import ServedModel, TokensTold
from schemas.messages.work import Arm, Grammar, RoleVersion, Sampling

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0
CONNECT_S = 5.0
SILENT_S = 600.0
"""An answer may wait this long for its next token, among what else the agent generates."""


class AgentRefused(EngineError):
    """The agent will not answer: asking again changes nothing."""


class TokenInFile(httpx.Auth):
    """A token that somebody renews: the file is read for each request. One that can't be read is none."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        with suppress(OSError):
            token = self._file.read_text(encoding="ascii", errors="replace").strip()
            request.headers["Authorization"] = f"Bearer {token}"
        yield request


def agent_client(token: str | None, token_file: Path | None = None) -> httpx.AsyncClient:
    """`token`: an operator's, where the fleet asks for one; or the file it is in."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = httpx.Timeout(CONNECT_S, read=SILENT_S)
    auth = TokenInFile(token_file) if token_file else None
    transport = StreamingTransport()
    return httpx.AsyncClient(headers=headers, timeout=timeout, transport=transport, trust_env=False, auth=auth)


async def served_model(http: httpx.AsyncClient, url: str) -> ServedModel:
    """Raises AgentRefused, ServerUnavailable."""
    try:
        reply = await http.get(f"{url}/internal/model")
    except httpx.HTTPError as error:
        raise ServerUnavailable(f"no agent answers at {url} ({error or type(error).__name__})") from error
    if not reply.is_success:
        raise _refusal(url, reply.status_code, reply.text)
    try:
        return ServedModel.model_validate_json(reply.content)
    except ValidationError:
        raise AgentRefused(f"what answers at {url} is no agent of this version") from None


async def served_by(http: httpx.AsyncClient, urls: Sequence[str]) -> ServedModel:
    """Return what the first replica that answers serves. Raises AgentRefused, ServerUnavailable."""
    for url in urls[:-1]:
        with suppress(ServerUnavailable):
            return await served_model(http, url)
    return await served_model(http, urls[-1])


def template_for(served: ServedModel, tokenizer: str | None = None) -> ChatTemplate:
    """`tokenizer`: in the place of what the agent says it has.

    Raises EngineError where programs can't talk with the model.
    """
    from ratchet.models.known import TOKENIZER_FILES, model_folder
    from ratchet.models.tokenization import template_of

    if served.context is None:
        raise EngineError(f"{served.engine} takes no token ids, so nothing it says can be recorded")
    name = tokenizer or served.tokenizer
    if name is None:
        raise EngineError(
            "the agent does not say which tokenizer its model has: name its folder with --tokenizer, of a runner with "
            "RATCHET_RUNNER_TOKENIZER"
        )
    template = template_of(model_folder(name, served.revision, files=TOKENIZER_FILES))
    if template is None:
        raise EngineError(f"{name} has no chat template: an agent can't talk with it")
    return template


@dataclass(frozen=True, slots=True)
class Model:
    """An agent's model, as programs find it. `urls`: of the agent's replicas, any of which may answer. `partners`: the
    models of the other roles of its programs, by role."""

    served: ServedModel
    template: ChatTemplate
    urls: tuple[str, ...]
    partners: Mapping[str, Model] = field(default_factory=dict)


async def find_model(http: httpx.AsyncClient, urls: tuple[str, ...], tokenizer: str | None = None) -> Model:
    """Raises EngineError, ServerUnavailable."""
    served = await served_by(http, urls)
    return Model(served, await asyncio.to_thread(template_for, served, tokenizer), urls)


class AgentTokens:
    """`urls`: of the agent's replicas, any of which may answer. `ends`: tokens that end an answer.

    `trouble` says why an answer waits or could not be had, until the next one is whole.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        urls: Sequence[str],
        *,
        arm: Arm | RoleVersion,
        sampling: Sampling,
        context: int,
        ends: Collection[int],
        first: int = 0,
    ) -> None:
        self.context = context
        self.trouble: str | None = None
        self._http = http
        self._urls = urls
        self._at = first
        self._arm = arm
        self._sampling = sampling
        self._ends = ends
        self._left: list[str] = []
        """Names of calls that were closed early: by their program, or because all of the rollout is cut off."""

    async def sample(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        stop: Sequence[str] = (),
        grammar: Grammar | None = None,
        call: str | None = None,
    ) -> AsyncGenerator[Token, None]:
        """Waits for an agent that is away, for as long as whoever asks does. Raises AgentRefused, ContextTooLong."""
        await self.call_off_left()
        try:
            async with aclosing(self._sample(prompt_ids, max_tokens, stop, grammar, call)) as tokens:
                async for token in tokens:
                    yield token
        except (GeneratorExit, asyncio.CancelledError):
            if call is not None:
                self._left.append(call)
            raise

    async def call_off_left(self) -> None:
        """Tell the agent that nobody asks again for the answers that were left. What it is not told of it samples to
        its end."""
        with suppress(httpx.HTTPError):
            while self._left:
                url, call = self._urls[self._at % len(self._urls)], self._left.pop()
                await self._http.delete(f"{url}/internal/generate/{call}", timeout=CONNECT_S)

    async def _sample(
        self, prompt_ids: Sequence[int], max_tokens: int, stop: Sequence[str], grammar: Grammar | None, call: str | None
    ) -> AsyncGenerator[Token, None]:
        most = min(max_tokens, self._sampling.max_tokens)
        sampled: list[int] = []
        failures = itertools.count(1)
        while True:
            before = len(sampled)
            try:
                held = None if grammar is None else (grammar, len(sampled))
                async with aclosing(
                    self._ask_agent([*prompt_ids, *sampled], most - len(sampled), stop, held, call)
                ) as tokens:
                    async for token in tokens:
                        sampled.append(token.id)
                        failpoint.reach("call-sampled")
                        yield token
                self.trouble = None
                return
            except ServerUnavailable as error:
                self.trouble = str(error)
            except EngineError as error:
                self.trouble = str(error)
                raise
            if sampled and (len(sampled) >= most or sampled[-1] in self._ends):
                self.trouble = None
                return
            self._at += 1
            if len(sampled) > before:
                failures = itertools.count(1)
            first_s, cap_s = FIRST_PAUSE_S, LONGEST_PAUSE_S
            await asyncio.sleep(pause_s(next(failures), first_s=first_s, cap_s=cap_s, random=random.random()))

    async def _ask_agent(
        self, prompt_ids: list[int], most: int, stop: Sequence[str], held: tuple[Grammar, int] | None, call: str | None
    ) -> AsyncGenerator[Token, None]:
        """`held`: a grammar, and how many ids at the end are the beginning of an answer under it."""
        url = self._urls[self._at % len(self._urls)]
        sampling = self._sampling.model_dump(include={"temperature", "top_p", "top_k"})
        if stop:
            sampling["stop"] = list(stop)
        body: dict[str, Any] = {
            "prompt_ids": prompt_ids,
            "sampling": sampling | {"n": 1, "max_tokens": most},
            "adapter_version": self._arm.adapter_version,
            "adapter_sha256": self._arm.adapter_sha256,
        }
        if held is not None:
            body |= {"grammar": held[0].model_dump(), "begun": held[1]}
        if call is not None:
            body["call"] = call
        try:
            async with self._http.stream(
                "POST", f"{url}/internal/generate", content=to_json(body), headers=JSON
            ) as reply:
                if not reply.is_success:
                    said = (await reply.aread()).decode(errors="replace")
                    raise _refusal(url, reply.status_code, said)
                finished = False
                async for line in lines(reply):  # to its end, so that the connection can be kept
                    told = _parse_tokens(line, url)
                    for token, logprob in zip(told.ids, told.logprobs, strict=True):
                        yield Token(token, logprob)
                    finished = told.finish_reason is not None
                if finished:
                    return
        except httpx.HTTPError as error:
            raise ServerUnavailable(f"the agent at {url} broke off ({error or type(error).__name__})") from error
        raise ServerUnavailable(f"the agent at {url} ended its answer in the middle")


def _parse_tokens(line: bytes, url: str) -> TokensTold:
    try:
        told = TokensTold.model_validate_json(line)
        if told.error is None and len(told.ids) == len(told.logprobs):
            return told
    except ValidationError:
        raise ServerUnavailable(f"the agent at {url} broke off in the middle of a line") from None
    raise ServerUnavailable(f"the agent at {url} failed: {told.error}")


def _refusal(url: str, status: int, said: str) -> Exception:
    try:
        problem = httpx.Response(status, text=said).json()
        kind, detail = str(problem.get("type")), str(problem.get("detail"))
    except (ValueError, AttributeError):
        kind, detail = "", said[:500]
    if status >= 500 or status in (408, 429):
        return ServerUnavailable(f"the agent at {url} can't answer now: {detail}")
    if status in (401, 403):
        return AgentRefused(
            f"the agent at {url} wants a token of an operator or a runner ({detail}): set RATCHET_API_TOKEN, or a "
            "runner's file"
        )
    if status == 404:
        return AgentRefused(f"what answers at {url} is no agent of this version ({detail})")
    if kind == "prompt-refused":
        return ContextTooLong(detail)
    return AgentRefused(f"the agent at {url} does not answer with this adapter or prompt: {detail}")
