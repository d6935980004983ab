"""A judge for tests: a real HTTP server that speaks /v1/chat/completions and answers from a brain or a script.

Brains see what a model would see: the messages of the request, rendered through a chat template.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.serving import serving

MODEL = "big-judge"

Brain = Callable[[dict[str, Any]], str | None]
"""A function from a request's body to the text of the reply; None refuses."""


@dataclass(frozen=True)
class Fault:
    """A fault that happens once, before the brain is asked: a status, a wait, another body, a dropped connection."""

    status: int = 200
    body: str = "{}"
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    drop: bool = False


@dataclass
class ModelServer:
    brain: Brain
    faults: list[Fault] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    url: str = ""

    def application(self) -> Starlette:
        routes = [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/models", self._models),
        ]
        return Starlette(routes=routes)

    async def _models(self, request: Request) -> Response:
        if self.faults:
            fault = self.faults.pop(0)
            return Response(fault.body, fault.status)
        return JSONResponse(
            {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": ""}]}
        )

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("authorization"))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._faulty() if self.faults else self._reply(body)
        finally:
            self.in_flight -= 1

    async def _faulty(self) -> Response:
        fault = self.faults.pop(0)
        await asyncio.sleep(fault.wait_s)  # real time: a slow server, for clients with a time-out
        if fault.drop:
            raise ConnectionError("dropped")
        return Response(fault.body, fault.status, fault.headers, "application/json")

    def _reply(self, body: dict[str, Any]) -> Response:
        text = self.brain(body)
        message = {"role": "assistant", "content": text, "refusal": None if text is not None else "I would rather not."}
        return JSONResponse(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        )


@asynccontextmanager
async def running(brain: Brain, *faults: Fault) -> AsyncIterator[ModelServer]:
    """Run the server on a free port of the loopback, within the block."""
    judge = ModelServer(brain, list(faults))
    async with serving(judge.application(), timeout_graceful_shutdown=None) as address:
        judge.url = f"{address}/v1"
        yield judge


def verdict(nonce: str, scores: dict[str, int]) -> str:
    verdicts = [{"id": answer, "reason": "because", "score": score} for answer, score in scores.items()]
    return json.dumps({"nonce": nonce, "verdicts": verdicts})
