"""The recorder over HTTP: OpenAI's chat completions, responses and models, Anthropic's messages; questions to a
person, and what calls of tools brought; a key that dies with its rollout.

A client is told what is not honoured, in its own error shape. Sampling is the rollout's: temperature, top_p, penalties
and seed are taken and have no effect. A connection that closes ends the generation.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import uvicorn
from pydantic import BaseModel, Field, StringConstraints, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ratchet.concurrency.threads import off_loop
from ratchet.dialects import messages
from ratchet.dialects.body import FAILURES, Refused, read_body, refusal_of
from ratchet.dialects.chat import CHAT
from ratchet.dialects.dialect import Body, Dialect, ModelRequest, PartialAnswer
from ratchet.dialects.kept_turns import Naming
from ratchet.dialects.messages import MESSAGES
from ratchet.dialects.responses import RESPONSES
from ratchet.openai.transport import error_object
from ratchet.rollouts.kept_steps import ToolCalled, tool_key
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.rollouts.tool_audit import MOST_ENTRY
from schemas.messages.base import explain

DIALECTS = (CHAT, RESPONSES, MESSAGES)
COUNT = "/v1/messages/count_tokens"
ASK_PERSON, TOOL_CALLS, TOOL_AUDIT = "/v1/ask_person", "/v1/tool_calls", "/v1/tool_audit"
MOST_CHANGES = 32 * 1024 * 1024
"""Bytes of what one call of a tool answered and changed. A rollout with one that has more is not run again from its
steps."""

MOST_BODY = 64 * 1024 * 1024
SMALL_BODY = 4096
"""Bytes of a request that is read and tokenized in a few milliseconds."""
BYTES_A_VALUE = 32
"""A body may have a value for so many bytes of the most that it may have: JSON that is nothing but values takes many
times the time and memory of text."""
NAMES_TURNS = (b"previous_response_id", b"item_reference", b"previous_message_id")
"""A body with one of these may be long once its history is there."""
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

    @contextmanager
    def key_for(self, rollout: RecordedRollout) -> Iterator[str]:
        """The key of the rollout's agent, which is worth something within this block alone."""
        key = self.begin(rollout)
        try:
            yield key
        finally:
            self.end(key)

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1") -> AsyncIterator[str]:
        """Serve on a port of its own; yield the base URL for clients, as in OPENAI_BASE_URL."""
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
            *(Route(one.path, self._authorise(_answerer(one)), methods=["POST"]) for one in DIALECTS),
            Route(COUNT, self._authorise(count_tokens), methods=["POST"]),
            # Vercel's createAnthropic() takes ANTHROPIC_BASE_URL to end in /v1
            Route(MESSAGES.path.removeprefix("/v1"), self._authorise(_answerer(MESSAGES)), methods=["POST"]),
            Route(COUNT.removeprefix("/v1"), self._authorise(count_tokens), methods=["POST"]),
            Route(ASK_PERSON, self._authorise(ask_person), methods=["POST"]),
            Route(TOOL_CALLS, self._authorise(begin_tool_call), methods=["POST"]),
            Route(f"{TOOL_CALLS}/{{key}}", self._authorise(end_tool_call), methods=["POST"]),
            Route(TOOL_AUDIT, self._authorise(audit_tool), methods=["POST"]),
            Route("/v1/models", self._authorise(list_models)),
            Route("/v1/models/{model}", self._authorise(show_model)),
        ]
        handlers = {Refused: _answer_refusal, HTTPException: _no_route, Exception: _fault}
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.state.most_body = self._most_body
        return app

    def _authorise(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def handle_authorised(request: Request) -> Response:
            headers = request.headers
            scheme, _, token = headers.get("authorization", "").partition(" ")
            given = (token.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", ""))
            rollout = next((found for key in given if (found := self._rollouts.get(_sum(key)))), None)
            if rollout is None:
                raise Refused(401, "the key is of no rollout that is under way", code="invalid_api_key")
            try:
                return await handler(request, rollout)
            except FAILURES as error:
                raise refusal_of(error) from error
            except RecursionError:
                raise Refused(400, "the body is nested too deep: no template can write it") from None

        return handle_authorised


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are the process's own."""
        yield


async def list_models(request: Request, rollout: RecordedRollout) -> Response:
    if messages.VERSION in request.headers:
        return JSONResponse(messages.write_models(*rollout.model_names))
    return JSONResponse({"object": "list", "data": [_model(name) for name in rollout.model_names]})


async def show_model(request: Request, rollout: RecordedRollout) -> Response:
    if (name := request.path_params["model"]) not in rollout.model_names:
        why = f"the model {name[:128]!r} does not exist: this rollout has {', '.join(rollout.model_names)}"
        raise Refused(404, why, param="model", code="model_not_found")
    is_anthropic = messages.VERSION in request.headers
    return JSONResponse(messages.write_model(name) if is_anthropic else _model(name))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "ratchet"}


def _answerer(dialect: Dialect) -> Handler:
    async def answer(request: Request, rollout: RecordedRollout) -> Response:
        rollout.budget.take_call()
        body, asked, size = await _read(request, rollout, dialect.read_request, dialect.naming)
        speaker = rollout.foreign_role(body.get("model")) or rollout.for_role(body.get("model"))
        answers: AsyncGenerator[PartialAnswer, None] = speaker.answer(asked)

        def keep(whole: dict[str, Any]) -> dict[str, Any]:
            return rollout.turns.keep(dialect.naming, body, size, whole) if dialect.naming else whole

        if body.get("stream"):
            first = await _or_refused(anext(answers))  # before anything is sent, so that a refusal has its status
            events = dialect.stream_answer(speaker.model, body, first, answers, keep)
            return StreamingResponse(events, media_type="text/event-stream")
        whole = await _whole(answers, request)
        return JSONResponse(keep(dialect.write_answer(speaker.model, body, whole)))

    return answer


async def count_tokens(request: Request, rollout: RecordedRollout) -> Response:
    rollout.budget.take_count()
    body, asked, _ = await _read(request, rollout, messages.read_prompt, MESSAGES.naming)
    return JSONResponse({"input_tokens": await rollout.for_role(body.get("model")).prompt_tokens(asked)})


class _Question(BaseModel):
    """`options`: answers to choose from, if there are such."""

    question: str = Field(min_length=1, max_length=8000)
    options: tuple[Annotated[str, StringConstraints(max_length=500)], ...] = Field((), max_length=16)


async def ask_person(request: Request, rollout: RecordedRollout) -> Response:
    """Answer with a person's decision and text. Where they are to be waited for, the program ends unanswered."""
    try:
        asked = _Question.model_validate_json(await _bytes(request, SMALL_BODY * 4))
    except ValidationError as error:
        said = explain("the question", error)
        raise Refused(400, f"{said}: send {{question, options}}", param="question") from None
    answer = await rollout.ask_person(asked.question, asked.options)
    while answer is None:
        if (await request.receive())["type"] == "http.disconnect":
            raise Refused(499, GONE)
    return JSONResponse({"decision": answer.decision, "text": answer.text})


async def begin_tool_call(request: Request, rollout: RecordedRollout) -> Response:
    """Answer with what a call of a tool brought before, or with the name under which its answer is to be kept."""
    async with rollout.reading:
        key = tool_key(await _bytes(request))
    kept = await rollout.take_tool_call(key)
    if kept is None:
        return JSONResponse({"call": key})
    return JSONResponse({"answer": kept.answer, "changes": kept.changes})


async def end_tool_call(request: Request, rollout: RecordedRollout) -> Response:
    """Keep what a call of a tool brought."""
    steps = rollout.steps
    if steps is None:
        raise Refused(404, "nothing is kept here of calls of tools")
    try:
        async with rollout.reading:
            raw = await _bytes(request, MOST_CHANGES)
            kept = await off_loop(lambda: _ended_call.decode(raw), is_large=len(raw) > SMALL_BODY)
            steps.add(ToolCalled(request.path_params["key"], kept.answer, kept.changes))
    except Refused as error:
        steps.stop_keeping(str(error))
        raise
    except msgspec.DecodeError as error:
        raise Refused(400, f"send {{answer, changes}}: {error}") from None
    return JSONResponse({})


async def audit_tool(request: Request, rollout: RecordedRollout) -> Response:
    """Write a line of the tools' audit, and answer with its number."""
    try:
        return JSONResponse({"number": rollout.tool_audit.record(await _bytes(request, MOST_ENTRY))})
    except msgspec.DecodeError as error:
        raise Refused(400, f"send an entry of the tools' audit: {error}") from None


class _EndedCall(msgspec.Struct):
    answer: dict[str, Any]
    changes: dict[str, Any]


_ended_call = msgspec.json.Decoder(_EndedCall)


async def _read(
    request: Request,
    rollout: RecordedRollout,
    read_request: Callable[[Body, Mapping[str, str]], ModelRequest],
    naming: Naming | None,
) -> tuple[Body, ModelRequest, int]:
    """Return the body, what it asks, and its size in bytes. Raises Refused.

    A thread reads a large one, or one that names what was said before, which may be.
    """
    async with rollout.reading:
        raw = await _bytes(request)
        is_large = len(raw) > SMALL_BODY or any(name in raw for name in NAMES_TURNS)

        def parse() -> tuple[Body, ModelRequest, int]:
            body = read_body(raw, request.app.state.most_body // BYTES_A_VALUE)
            asked = read_request(rollout.turns.resolve(naming, body) if naming else body, request.headers)
            return body, replace(asked, is_large=is_large), len(raw)

        return await off_loop(parse, is_large=is_large)


async def _bytes(request: Request, most: int | None = None) -> bytes:
    """Read the body, of at most so many bytes; as many as a request of the model may have if None. Raises Refused."""
    if (encoding := request.headers.get("content-encoding", "identity")) != "identity":
        raise Refused(
            415, f"a body in {encoding[:32]!r} is not unpacked: send it uncompressed", param="content-encoding"
        )
    had = bytearray()
    most = request.app.state.most_body if most is None else most
    try:
        async for part in request.stream():
            had += part
            if len(had) > most:
                raise Refused(400, f"the request has more than {most:,} bytes", code="context_length_exceeded")
    except ClientDisconnect:
        raise Refused(499, GONE) from None
    return bytes(had)


async def _or_refused(work: Awaitable[PartialAnswer]) -> PartialAnswer:
    """Raises Refused where it fails."""
    try:
        return await work
    except FAILURES as error:
        raise refusal_of(error) from error


async def _whole(answers: AsyncGenerator[PartialAnswer, None], request: Request) -> PartialAnswer:
    """Raises Refused, also where the client has gone, which ends the generation."""

    async def gather() -> PartialAnswer:
        async with aclosing(answers):
            return [answer async for answer in answers][-1]

    async def until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    work, leaving = asyncio.ensure_future(_or_refused(gather())), asyncio.ensure_future(until_gone())
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


async def _answer_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse(_object(request, error.error), status_code=error.status)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    there = (
        "/v1/chat/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens, /v1/models and /v1/ask_person"
    )
    said = f"there is no {request.method} {request.url.path} here; there are {there}"
    return JSONResponse(_object(request, error_object(error.status_code, said)), status_code=error.status_code)


async def _fault(request: Request, error: Exception) -> Response:
    """One of ours, which is raised again behind it."""
    said = error_object(500, f"the recorder failed: {type(error).__name__}")
    return JSONResponse(_object(request, said), status_code=500)


def _object(request: Request, error: dict[str, Any]) -> dict[str, Any]:
    """Return the error's body in the client's dialect."""
    path = request.url.path
    if path.removeprefix("/v1").startswith("/messages") or messages.VERSION in request.headers:
        return messages.write_error(error)
    return (RESPONSES if path.startswith(RESPONSES.path) else CHAT).write_error(error)


def _sum(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
