"""POST /v1/chat/completions and /v1/models: the fleet as OpenAI's clients know a server, by its base URL alone.

A call is a task like any other; its answer is the best of a scored group. The fleet answers whole, so a stream is a
wait with comments, then the answer in pieces. Errors have OpenAI's shape (ratchet/http/problem.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response
from fastapi import Path as InPath
from starlette.responses import JSONResponse, StreamingResponse

from ratchet.dialects import messages
from ratchet.dialects.chat import CHAT
from ratchet.dialects.dialect import Dialect, count_retries
from ratchet.http.access.guard import CallerOf
from ratchet.http.operation import OPERATOR, OWN_TASKS, SUBMITTER, VIEWER, Effect, operation
from ratchet.http.problem import problem_of, problems
from ratchet.http.server.idempotency import IdempotencyKey, id_from_key
from ratchet.http.work import while_connected
from ratchet.openai.chat import ChatCompletion, ChatRequest
from ratchet.openai.completions import Model, ModelList
from ratchet.service.errors import RatchetError
from services.orchestrator.api.chat_answer import stream_completion
from services.orchestrator.api.chat_service import ChatService, Question, task_headers
from services.orchestrator.api.chat_task import unknown_model

ROUTE = "POST /v1/chat/completions"
KEEP_ALIVE_S = 10.0
ONE_PAGE = "Of Anthropic's clients. No effect: all are on one page."
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer; with `stream`, chunks of it as server-sent events, the last one `[DONE]`.",
        "content": {"text/event-stream": {}},
        "headers": {"x-ratchet-task-id": {"description": "The task it became.", "schema": {"type": "string"}}},
    }
}


def chat_router(service: ChatService) -> APIRouter:
    router = APIRouter(tags=["openai"])

    @router.post(
        "/v1/chat/completions", response_model=ChatCompletion, responses=STREAM | problems(400, 404, 408, 410, 503, 504)
    )
    @operation(OWN_TASKS, OPERATOR, effect=Effect.WORKS)
    async def complete(
        body: Annotated[ChatRequest, Body()], request: Request, caller: CallerOf, idempotency_key: IdempotencyKey = None
    ) -> Any:
        """Answer a conversation. The call becomes a task, the answer is the best of its group."""
        key = None if idempotency_key is None else id_from_key(caller, ROUTE, idempotency_key)
        question = Question(body, caller, key=key, is_retry=count_retries(request.headers) > 0)
        task_id = await service.ask(question)
        headers = task_headers(task_id)
        if body.stream:
            events = stream_answer(service, question, task_id, partial(_stream, question), CHAT)
            return StreamingResponse(events, headers=headers, media_type="text/event-stream")
        lines = await while_connected(request, service.lines(task_id))
        answer = service.completion_to_deliver(question, task_id, lines)
        return Response(answer.model_dump_json(), headers=headers, media_type="application/json")

    @router.get("/v1/models", response_model=ModelList)
    @operation(VIEWER, SUBMITTER, OPERATOR, reach="own")
    async def models(
        request: Request,
        caller: CallerOf,
        limit: Annotated[int | None, Query(description=ONE_PAGE)] = None,
        after_id: Annotated[str | None, Query(description=ONE_PAGE)] = None,
        before_id: Annotated[str | None, Query(description=ONE_PAGE)] = None,
    ) -> Any:
        """List the fleet's agents, and the versions of each that can be asked for."""
        if messages.VERSION in request.headers:
            return JSONResponse(messages.write_models(*(model.id for model in service.models(caller))))
        return ModelList(data=service.models(caller))

    @router.get("/v1/models/{model}", response_model=Model, responses=problems(404))
    @operation(VIEWER, SUBMITTER, OPERATOR, reach="own")
    async def model(model: Annotated[str, InPath(max_length=128)], request: Request, caller: CallerOf) -> Any:
        """Show one of them."""
        for one in service.models(caller):
            if one.id == model:
                return JSONResponse(messages.write_model(one.id)) if messages.VERSION in request.headers else one
        raise unknown_model(model, (one.id for one in service.models(caller)))

    return router


async def stream_answer(
    service: ChatService,
    question: Question,
    task_id: str,
    events: Callable[[ChatCompletion], AsyncIterator[str]],
    dialect: Dialect,
) -> AsyncIterator[str]:
    """Comments while it is being worked on, so that nothing on the way takes the connection for dead. `events`: of the
    answer; an error is the last one, as the dialect has it."""
    yield ": on its way\n\n"
    try:
        while not await service.is_closed(task_id, KEEP_ALIVE_S):
            yield ": not yet\n\n"
        lines = await service.lines(task_id)
        answer = service.completion_to_deliver(question, task_id, lines)
    except RatchetError as error:
        yield dialect.stream_error(problem_of(error).openai())
        return
    async for event in events(answer):
        yield event


async def _stream(question: Question, answer: ChatCompletion) -> AsyncIterator[str]:
    options = question.request.stream_options
    for event in stream_completion(answer, usage=bool(options and options.include_usage)):
        yield event
