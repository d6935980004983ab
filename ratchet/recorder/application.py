"""The recorder over HTTP: OpenAI's chat completions, responses and models, Anthropic's messages; a key that dies with
its rollout.

A client is told what is not honoured, in its own error shape. Sampling is the rollout's: temperature, top_p, penalties
and seed are taken and have no effect. A connection that closes ends the generation.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ratchet.concurrency.threads import off_loop
from ratchet.openai.errors import error_object
from ratchet.openai.honoured import DIFFERENT, REFUSED, refusal, stop_strings
from ratchet.openai.tools import CHOICES, NOT_FORCED, choice_of
from ratchet.recorder import anthropic, responses
from ratchet.recorder.body import read, with_known_roles
from ratchet.recorder.dialect import Asked, Growth, TextKind, function_tool, one_call, retries, wanted
from ratchet.recorder.refused import FAILURES, Refused, refused_of
from ratchet.recorder.rollout import Answer, RecordedRollout

MOST_BODY = 64 * 1024 * 1024
SMALL_BODY = 4096
"""Bytes of a request that is read and tokenized in a few milliseconds."""
BYTES_A_VALUE = 32
"""A body may have a value for so many bytes of the most that it may have: JSON that is nothing but values takes many
times the time and memory of text."""
GONE = "the client has gone"

Handler = Callable[[Request, RecordedRollout], Awaitable[Response]]


class Recorder:
    """The rollouts that are being recorded, by the sums of their keys: the keys themselves are not kept."""

    def __init__(self, most_body: int = MOST_BODY) -> None:
        """`most_body`: bytes of a request."""
        self._rollouts: dict[str, RecordedRollout] = {}
        self._most_body = most_body

    def begin(self, rollout: RecordedRollout) -> str:
        """The key that its agent is given."""
        key = f"rollout-{secrets.token_urlsafe(32)}"
        self._rollouts[_sum(key)] = rollout
        return key

    def end(self, key: str) -> RecordedRollout:
        """The key is worth nothing from now on. Raises KeyError for one that is not known."""
        return self._rollouts.pop(_sum(key))

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1") -> AsyncIterator[str]:
        """On a port of its own; the base URL for clients, as in OPENAI_BASE_URL."""
        with socket.create_server((host, 0)) as listening:
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does for sockets it made itself
            config = uvicorn.Config(
                self.application(),
                http="h11",  # httptools would send chunks to a client of HTTP/1.0
                log_config=None,
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
            server = _Server(config)
            serving = asyncio.create_task(server.serve([listening]))
            try:
                yield f"http://{host}:{listening.getsockname()[1]}/v1"
            finally:
                server.should_exit = True
                await serving

    def application(self) -> Starlette:
        routes = [
            Route("/v1/chat/completions", self._authorised(chat), methods=["POST"]),
            *(
                Route(f"{base}{path}", self._authorised(handler), methods=["POST"])
                for base in ("/v1", "")  # Vercel's createAnthropic() takes ANTHROPIC_BASE_URL to end in /v1
                for path, handler in (("/messages", messages), ("/messages/count_tokens", count_tokens))
            ),
            Route("/v1/responses", self._authorised(respond), methods=["POST"]),
            Route("/v1/models", self._authorised(models)),
            Route("/v1/models/{model}", self._authorised(model)),
        ]
        handlers = {Refused: _refused, HTTPException: _no_route, Exception: _fault}
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.state.most_body = self._most_body
        return app

    def _authorised(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def authorised(request: Request) -> Response:
            headers = request.headers
            scheme, _, token = headers.get("authorization", "").partition(" ")
            given = (token.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", ""))
            rollout = next((found for key in given if (found := self._rollouts.get(_sum(key)))), None)
            if rollout is None:
                raise Refused(401, "the key is of no rollout that is under way", code="invalid_api_key")
            try:
                return await handler(request, rollout)
            except FAILURES as error:
                raise refused_of(error) from error
            except RecursionError:
                raise Refused(400, "the body is nested too deep: no template can write it") from None

        return authorised


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are the process's own."""
        yield


async def models(request: Request, rollout: RecordedRollout) -> Response:
    if anthropic.VERSION in request.headers:
        return JSONResponse(anthropic.models(rollout.model))
    return JSONResponse({"object": "list", "data": [_model(rollout)]})


async def model(request: Request, rollout: RecordedRollout) -> Response:
    if (asked := request.path_params["model"]) != rollout.model:
        said = f"the model {asked[:128]!r} does not exist: this rollout has {rollout.model}"
        raise Refused(404, said, param="model", code="model_not_found")
    return JSONResponse(anthropic.model(rollout.model) if anthropic.VERSION in request.headers else _model(rollout))


def _model(rollout: RecordedRollout) -> dict[str, Any]:
    return {"id": rollout.model, "object": "model", "created": 0, "owned_by": "ratchet"}


async def chat(request: Request, rollout: RecordedRollout) -> Response:
    rollout.budget.take_call()
    body, asked, _ = await _read(request, rollout, _asked)
    head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": rollout.model}
    answers = rollout.answer(asked)
    if body.get("stream"):
        first = await _told(anext(answers))  # before anything is sent, so that what is refused has its status
        with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        logprobs = rollout if body.get("logprobs") else None
        return StreamingResponse(_events(head, first, answers, with_usage, logprobs), media_type="text/event-stream")
    answer = await _whole(answers, request)
    choice = {
        "index": 0,
        "message": {"refusal": None} | answer.message,
        **_ended(answer),
        "logprobs": _logprobs(answer, rollout) if body.get("logprobs") else None,
    }
    return JSONResponse(head | {"object": "chat.completion", "choices": [choice], "usage": _usage(answer)})


async def messages(request: Request, rollout: RecordedRollout) -> Response:
    rollout.budget.take_call()
    body, asked, _ = await _read(request, rollout, anthropic.asked)
    answers = rollout.answer(asked)
    if body.get("stream"):
        first = await _told(anext(answers))
        return StreamingResponse(anthropic.events(rollout.model, first, answers), media_type="text/event-stream")
    return JSONResponse(anthropic.message(rollout.model, await _whole(answers, request)))


async def count_tokens(request: Request, rollout: RecordedRollout) -> Response:
    rollout.budget.take_count()
    _, asked, _ = await _read(request, rollout, anthropic.to_count)
    return JSONResponse({"input_tokens": await rollout.prompt_tokens(asked)})


async def respond(request: Request, rollout: RecordedRollout) -> Response:
    rollout.budget.take_call()
    body, asked, size = await _read(
        request, rollout, lambda body, headers: responses.asked(rollout.responses.resolve(body), headers)
    )
    answers = rollout.answer(asked)
    head = responses.begun(rollout.model, body)
    keep = partial(rollout.responses.keep, body, size)
    if body.get("stream"):
        first = await _told(anext(answers))
        return StreamingResponse(responses.events(head, first, answers, keep), media_type="text/event-stream")
    return JSONResponse(keep(responses.response(head, await _whole(answers, request))))


async def _read(
    request: Request, rollout: RecordedRollout, dialect: Callable[[dict[str, Any], Mapping[str, str]], Asked]
) -> tuple[dict[str, Any], Asked, int]:
    """The body, what it asks, and its size in bytes. Raises Refused.

    A thread reads a large one, or one that names what was said before, which may be.
    """
    async with rollout.reading:
        raw = await _bytes(request)
        is_large = len(raw) > SMALL_BODY or any(name in raw for name in (b"previous_response_id", b"item_reference"))

        def parse() -> tuple[dict[str, Any], Asked, int]:
            body = read(raw, request.app.state.most_body // BYTES_A_VALUE)
            return body, replace(dialect(body, request.headers), is_large=is_large), len(raw)

        return await off_loop(parse, is_large=is_large)


async def _bytes(request: Request) -> bytes:
    """Of its body. Raises Refused."""
    if (encoding := request.headers.get("content-encoding", "identity")) != "identity":
        raise Refused(
            415, f"a body in {encoding[:32]!r} is not unpacked: send it uncompressed", param="content-encoding"
        )
    had, most = bytearray(), request.app.state.most_body
    try:
        async for part in request.stream():
            had += part
            if len(had) > most:
                raise Refused(400, f"the request has more than {most:,} bytes", code="context_length_exceeded")
    except ClientDisconnect:
        raise Refused(499, GONE) from None
    return bytes(had)


def _asked(body: dict[str, Any], headers: Mapping[str, str]) -> Asked:
    messages, tools = body.get("messages"), body.get("tools") or []
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise Refused(400, "messages must be a list of messages, one at least", param="messages")
    if body.get("n") not in (None, 1):
        raise Refused(400, DIFFERENT["n"], param="n")
    choice = choice_of(body.get("tool_choice"))
    if choice not in CHOICES:
        raise Refused(400, NOT_FORCED, param="tool_choice")
    for tool in tools:
        if tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
            raise Refused(400, f"a tool is {tool.get('type')!r}: functions with a name are taken", param="tools")
        function_tool(tool["function"])
    for name in REFUSED:
        if why := refusal(name, body.get(name)):
            raise Refused(400, why, param=name)
    for name in ("audio", "function_call"):
        if why := next((why for message in messages if (why := refusal(name, message.get(name)))), None):
            raise Refused(400, why, param="messages")
    try:
        stop = stop_strings(body.get("stop"))
    except ValueError as error:
        raise Refused(400, str(error), param="stop") from None
    return Asked(
        messages=with_known_roles(messages),
        tools=tools,
        calls=choice != "none",
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        stop=stop,
        retry=retries(headers),
        streamed=bool(body.get("stream")),
        one_call=one_call(body),
        wants=wanted(body),
    )


async def _told(work: Awaitable[Answer]) -> Answer:
    """Raises Refused where it fails."""
    try:
        return await work
    except FAILURES as error:
        raise refused_of(error) from error


async def _whole(answers: AsyncGenerator[Answer, None], request: Request) -> Answer:
    """Raises Refused, also where the client has gone, which ends the generation."""

    async def gather() -> Answer:
        async with aclosing(answers):
            return [answer async for answer in answers][-1]

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    work, leaving = asyncio.ensure_future(_told(gather())), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            raise Refused(499, GONE)
        return work.result()
    finally:
        leaving.cancel()
        work.cancel()  # where this was cancelled itself: nobody waits for the answer


DELTAS: Mapping[TextKind, str] = {"reasoning": "reasoning_content", "content": "content"}
"""What chunks call the kinds of text."""


async def _events(
    head: dict[str, Any],
    first: Answer,
    answers: AsyncGenerator[Answer, None],
    with_usage: bool,
    logprobs: RecordedRollout | None,
) -> AsyncIterator[str]:
    """What each answer has more than the last; tool calls at the end, whole; with the last chunk that has a choice the
    log-probabilities of all tokens, where they are asked for of this rollout."""
    growth = Growth()
    chunk = head | {"object": "chat.completion.chunk"}

    begun = json.dumps(chunk)[:-1]

    def event(delta: dict[str, Any], **ended: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None} | ended
        return f'data: {begun}, "choices": [{json.dumps(choice)}]}}\n\n'

    def grown(answer: Answer) -> dict[str, Any]:
        return {DELTAS[kind]: text for kind, text in growth.of(answer)}

    async with aclosing(answers):
        yield event({"role": "assistant", "content": ""})
        answer = first
        if delta := grown(answer):
            yield event(delta)
        try:
            async for answer in answers:
                if delta := grown(answer):
                    yield event(delta)
        except FAILURES as error:
            yield f"data: {json.dumps({'error': refused_of(error).error})}\n\n"
            return
        calls = [{"index": index} | call for index, call in enumerate(answer.message.get("tool_calls", ()))]
        if calls:
            yield event({"tool_calls": calls})
        yield event({}, **_ended(answer), logprobs=_logprobs(answer, logprobs) if logprobs else None)
        if with_usage:
            yield f"data: {json.dumps(chunk | {'choices': [], 'usage': _usage(answer)})}\n\n"
        yield "data: [DONE]\n\n"


def _ended(answer: Answer) -> dict[str, Any]:
    ended = {"finish_reason": "tool_calls" if answer.parsed.calls else answer.finish}
    return ended if answer.stopped_at is None else ended | {"stop_reason": answer.stopped_at}


def _usage(answer: Answer) -> dict[str, int]:
    prompt, completion = len(answer.call.prompt_ids), len(answer.tokens)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _logprobs(answer: Answer, rollout: RecordedRollout) -> dict[str, Any]:
    tokens = [(rollout.text_of(token.id), token.logprob) for token in answer.tokens]
    return {
        "content": [
            {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
            for text, logprob in tokens
        ]
    }


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse(_object(request, error.error), status_code=error.status)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    there = "/v1/chat/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens and /v1/models"
    said = f"there is no {request.method} {request.url.path} here; there are {there}"
    return JSONResponse(_object(request, error_object(error.status_code, said)), status_code=error.status_code)


async def _fault(request: Request, error: Exception) -> Response:
    """One of ours, which is raised again behind it."""
    said = error_object(500, f"the recorder failed: {type(error).__name__}")
    return JSONResponse(_object(request, said), status_code=500)


def _object(request: Request, error: dict[str, Any]) -> dict[str, Any]:
    """As the client's dialect has it."""
    path = request.url.path
    if path.removeprefix("/v1").startswith("/messages") or anthropic.VERSION in request.headers:
        return anthropic.error_object(error)
    if path.startswith("/v1/responses") and error["param"] == "messages":
        return {"error": error | {"param": "input", "message": f"input: {error['message'].removeprefix('messages: ')}"}}
    return {"error": error}


def _sum(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
