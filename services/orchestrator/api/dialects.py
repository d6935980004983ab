"""POST /v1/messages and /v1/responses: the chat front in Anthropic's words, and in those of OpenAI's responses.

They are read and written by ratchet/dialects, as the recorder does; a request becomes a chat request, so both honour
what that honours, and refuse by name what it refuses. Their shapes are their vendors': they are no part of the OpenAPI
document.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.responses import JSONResponse, Response, StreamingResponse

from ratchet.conversation.messages import canonical
from ratchet.dialects.body import Refused, read_body, refusal_of
from ratchet.dialects.dialect import Dialect, ModelRequest, Parsed, count_retries
from ratchet.dialects.kept_turns import KeptTurns
from ratchet.dialects.messages import MESSAGES
from ratchet.dialects.responses import RESPONSES
from ratchet.http.access.guard import CallerOf
from ratchet.http.operation import OPERATOR, OWN_TASKS, Effect, operation
from ratchet.http.problem import Fault, Problem
from ratchet.http.server.idempotency import IdempotencyKey, id_from_key
from ratchet.http.work import while_connected
from ratchet.openai.chat import ChatCompletion, ChatRequest
from ratchet.openai.honoured import WISHES
from ratchet.openai.tools import REQUIRED
from ratchet.service.errors import PromptRefused
from schemas.messages.response import FinishReason
from services.orchestrator.api.chat import stream_answer
from services.orchestrator.api.chat_answer import pieces
from services.orchestrator.api.chat_service import ChatService, Question, task_headers

MOST_KEPT_BYTES = 64 * 1024 * 1024
"""Bytes of turns, of all callers together, that a later request may name."""
ASKED_FOR_NOTHING: tuple[Any, ...] = (None, False, 0, "", [], {})
READ = ("model", "stream", "temperature", "top_p", "tools", "tool_choice", "metadata")
"""Fields of both."""
OF_MESSAGES = (
    "messages",
    "system",
    "max_tokens",
    "stop_sequences",
    "top_k",
    "thinking",
    "output_config.effort",
    "output_config.format",
    "output_format",
    "cache_control",
    "service_tier",
)
OF_RESPONSES = (
    "input",
    "instructions",
    "max_output_tokens",
    "text.format",
    "text.verbosity",
    "reasoning.effort",
    "reasoning.summary",
    "reasoning.generate_summary",
    "user",
    "parallel_tool_calls",
    "include",
    "truncation",
    "stream_options",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "store",
    "previous_response_id",
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The best answer of a task, as dialects tell one."""

    parsed: Parsed
    call_ids: tuple[str, ...]
    finish: FinishReason
    prompt_tokens: int
    sampled_tokens: int
    stopped_at: str | None
    token_logprobs: tuple[tuple[str, float], ...] = ()
    """Log-probabilities, which only a chat has and writes."""


@dataclass(frozen=True, slots=True)
class Front:
    """A dialect as the public front takes it: it becomes a chat request.

    `read_names`: what a chat has besides. `taken`: fields that the dialect reads, or that are harmless; any other is
    refused unless it asks for nothing. `names`: what parameters of a chat are called in the dialect.
    """

    dialect: Dialect
    read_names: Callable[[Mapping[str, Any]], dict[str, Any]]
    taken: frozenset[str]
    names: Mapping[str, str]


def _names_in_messages(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = body.get("metadata")
    return {"user": metadata.get("user_id") if isinstance(metadata, dict) else None}


def _names_in_responses(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body.get(name) for name in ("user", "metadata")}


MESSAGES_FRONT = Front(
    MESSAGES,
    _names_in_messages,
    frozenset((*READ, *OF_MESSAGES)),
    {"stop": "stop_sequences", "user": "metadata.user_id", "reasoning_effort": "output_config.effort"},
)
RESPONSES_FRONT = Front(
    RESPONSES,
    _names_in_responses,
    frozenset((*READ, *OF_RESPONSES)),
    {
        "messages": "input",
        "max_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "verbosity": "text.verbosity",
    },
)


def dialects_router(service: ChatService) -> APIRouter:
    router = APIRouter()
    most_named = service.tasks.intake.max_message_bytes
    kept = KeptTurns(MOST_KEPT_BYTES, most_named, "RATCHET_MAX_MESSAGE_BYTES")

    @router.post(MESSAGES.path, include_in_schema=False)
    @operation(OWN_TASKS, OPERATOR, effect=Effect.WORKS)
    async def messages(
        request: Request,
        caller: CallerOf,
        beta: Annotated[str | None, Query(description="No effect.")] = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        return await _answer_request(MESSAGES_FRONT, service, request, caller, idempotency_key, kept)

    @router.post(RESPONSES.path, include_in_schema=False)
    @operation(OWN_TASKS, OPERATOR, effect=Effect.WORKS)
    async def respond(request: Request, caller: CallerOf, idempotency_key: IdempotencyKey = None) -> Response:
        return await _answer_request(RESPONSES_FRONT, service, request, caller, idempotency_key, kept)

    return router


async def _answer_request(
    front: Front, service: ChatService, request: Request, caller: CallerOf, idempotency_key: str | None, kept: KeptTurns
) -> Response:
    raw, naming = await request.body(), front.dialect.naming
    try:
        body = read_body(raw)
        asked = kept.resolve(naming, body, caller.name) if naming else body
        chat = chat_request(front, asked, request.headers)
    except Refused as error:
        raise _problem(front, error) from None
    except PromptRefused as error:
        raise _problem(front, refusal_of(error)) from None
    key = None if idempotency_key is None else id_from_key(caller, f"POST {front.dialect.path}", idempotency_key)
    question = Question(chat, caller, key=key, is_retry=count_retries(request.headers) > 0)
    task_id = await service.ask(question)
    headers = task_headers(task_id)

    def keep(told: dict[str, Any]) -> dict[str, Any]:
        return kept.keep(naming, body, len(raw), told, caller.name) if naming else told

    if chat.stream:

        def events(answer: ChatCompletion) -> AsyncIterator[str]:
            told = chosen_answer(answer)
            nothing = replace(told, parsed=Parsed(), call_ids=())
            return front.dialect.stream_answer(answer.model, body, nothing, growing(told), keep)

        lines = stream_answer(service, question, task_id, events, front.dialect)
        return StreamingResponse(lines, headers=headers, media_type="text/event-stream")
    answer = service.completion_to_deliver(question, task_id, await while_connected(request, service.lines(task_id)))
    whole = keep(front.dialect.write_answer(answer.model, body, chosen_answer(answer)))
    return JSONResponse(whole | {"ratchet": answer.ratchet.model_dump()}, headers=headers)


def chat_request(front: Front, body: Mapping[str, Any], headers: Mapping[str, str]) -> ChatRequest:
    """Raises Refused, PromptRefused, RequestValidationError."""
    asked = front.dialect.read_request(body, headers)
    for name, value in _fields(body, {name.partition(".")[0] for name in front.taken if "." in name}):
        if not (name in front.taken or value in ASKED_FOR_NOTHING):
            raise Refused(400, f"{name}: this fleet does not do that, or does not know it", param=name)
    given: dict[str, Any] = {
        "model": body.get("model"),
        "messages": [canonical(message) for message in asked.messages],
        "tools": list(asked.tools),
        "tool_choice": _tool_choice(asked),
        "response_format": asked.format if asked.format is not None and asked.format.type != "tool_call" else None,
        "max_tokens": asked.max_tokens,
        "temperature": body.get("temperature"),
        "top_p": body.get("top_p"),
        "stop": list(asked.stop),
        "parallel_tool_calls": False if asked.one_call else None,
        "stream": body.get("stream"),
    }
    given |= {name: asked.wants.get(name) for name in WISHES} | front.read_names(body)
    try:
        return ChatRequest.model_validate(given)
    except ValidationError as error:
        faults = [fault | {"loc": ("body", *_place(front, fault["loc"]))} for fault in error.errors()]
        raise RequestValidationError(faults, body={"model": None, **body}) from None


def _tool_choice(asked: ModelRequest) -> Any:
    if asked.format is None or asked.format.type != "tool_call":
        return None if asked.calls else "none"
    name = asked.format.tool
    return REQUIRED if name is None else {"type": "function", "function": {"name": name}}


def _fields(body: Mapping[str, Any], objects: Container[str]) -> Iterator[tuple[str, Any]]:
    """Names and values; of those fields that are `objects` of fields themselves, theirs."""
    for name, value in body.items():
        inner = value if name in objects and isinstance(value, dict) else None
        yield from [(name, value)] if inner is None else [(f"{name}.{one}", it) for one, it in inner.items()]


def chosen_answer(answer: ChatCompletion) -> Chosen:
    choice, usage = answer.choices[0], answer.usage
    said, calls = choice.message, choice.message.tool_calls or []
    return Chosen(
        parsed=Parsed(
            content=said.content or "",
            reasoning=said.reasoning_content or "",
            calls=tuple((call.function.name, call.function.arguments) for call in calls),
        ),
        call_ids=tuple(call.id for call in calls),
        finish="stop" if choice.finish_reason == "tool_calls" else choice.finish_reason,
        prompt_tokens=usage.prompt_tokens,
        sampled_tokens=usage.completion_tokens,
        stopped_at=choice.stop_reason,
    )


async def growing(told: Chosen) -> AsyncGenerator[Chosen, None]:
    """Reasoning piece by piece, then the text, then all of it."""
    reasoning = content = ""
    for piece in pieces(told.parsed.reasoning):
        reasoning += piece
        yield replace(told, parsed=Parsed(reasoning=reasoning), call_ids=())
    for piece in pieces(told.parsed.content):
        content += piece
        yield replace(told, parsed=Parsed(content, reasoning), call_ids=())
    yield told


def _place(front: Front, where: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the place in a chat request by the dialect's name. A dialect's turns are not those of the chat."""
    first, *rest = where or ("",)
    name = front.names.get(first, first)
    return tuple(name.split(".")) if first in ("messages", "tools") else (*name.split("."), *rest)


def _problem(front: Front, error: Refused) -> Problem:
    param = error.error["param"]
    pointer = "/" + str(front.names.get(param, param)).replace(".", "/") if param else ""
    faults = [Fault(pointer=pointer, detail=str(error))] if param else []
    return Problem(error.status, "Not valid", str(error), error.error["code"] or "invalid", faults=faults)
