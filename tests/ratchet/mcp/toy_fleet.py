"""Services as small as can be behind the real application: real guard, real MCP, answers made up.

It notes every call that reaches a route, and whether it was broken off. Served on a free port, as a real server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from fastapi import APIRouter, Request, Response
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ratchet.http.access.guard import CallerOf
from ratchet.http.access.keys import KeyFolder
from ratchet.http.access.roles import Role
from ratchet.http.access.tokens import issue
from ratchet.http.operation import OPERATOR, OWN_TASKS, VIEWER, Effect, operation
from ratchet.http.problem import Problem
from ratchet.http.server.application import application
from ratchet.http.work import while_connected
from ratchet.service.settings import FleetSettings
from schemas.api.adapters import PromoteRequest
from schemas.api.runs import TrainRunRequest
from schemas.api.tasks import TaskSubmission
from schemas.messages.base import AgentId
from tests.ratchet.http.plain_http import NO_TLS
from tests.serving import serving

MOMENT = "2026-01-02T03:04:05Z"


@dataclass
class Toy:
    """`holds_s`: how long a task takes; `promotes_s`: a promotion. `states`: what a run says, look by look."""

    holds_s: float = 0.0
    promotes_s: float = 0.0
    states: list[str] = field(default_factory=lambda: ["trained"])
    answer_length: int = 3
    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    broken_off: asyncio.Event = field(default_factory=asyncio.Event)
    promoted: asyncio.Event = field(default_factory=asyncio.Event)

    def orchestrator(self) -> APIRouter:
        router = APIRouter()

        @router.post("/v1/tasks")
        @operation(OWN_TASKS, OPERATOR, effect=Effect.WORKS, title="Submit", tool="submit_task", given={"wait_s": 30.0})
        async def submit(
            body: TaskSubmission, request: Request, response: Response, caller: CallerOf, wait_s: float = 0
        ) -> dict[str, Any]:
            """Submit a task."""
            self.calls.append(("submit", caller.name, await request.json()))
            self.called.set()
            await while_connected(request, self._hold(min(wait_s, self.holds_s)))
            if self.holds_s > wait_s:
                response.status_code = 202
                return {"task_id": "t-1", "state": "open", "location": "/v1/tasks/t-1"}
            return _result(str(body.input))

        @router.get("/v1/log")
        @operation(VIEWER, OPERATOR, title="The tail", resource="log/tail")
        async def log(limit: int = 50) -> dict[str, Any]:
            """Show the tail."""
            return {"items": [], "next": str(limit)}

        @router.get("/v1/tasks/{task_id:path}")
        @operation(VIEWER, OWN_TASKS, OPERATOR, title="A task", tool="get_task", resource="tasks")
        async def task(task_id: str) -> dict[str, Any]:
            """Show a task."""
            if task_id == "lost":
                raise Problem(404, "Unknown task", "no task 'lost' was ever admitted: list_tasks has those that were")
            return _history(task_id, "x" * self.answer_length)

        @router.post("/v1/adapters/{agent_id}/promote")
        @operation(OPERATOR, effect=Effect.REPLACES, title="Promote", tool="promote")
        async def promote(agent_id: AgentId, asked: PromoteRequest, caller: CallerOf) -> dict[str, Any]:
            """Promote."""
            self.calls.append((f"promote {agent_id}", caller.name, asked.model_dump()))
            self.called.set()
            await asyncio.sleep(self.promotes_s)  # real time: a service that takes so long
            self.promoted.set()
            raise Problem(409, "Not allowed now", "v1.0.9 is rejected: it can't become primary", "not-allowed")

        @router.get("/v1/adapters")
        @operation(VIEWER, OPERATOR, title="List", tool="list_adapters", resource="registry")
        async def adapters(limit: int | None = None) -> dict[str, Any]:
            """List adapters."""
            return {"items": [], "next": None}

        return router

    def trainer(self) -> APIRouter:
        router = APIRouter()

        @router.post("/v1/train", status_code=202)
        @operation(OPERATOR, effect=Effect.ADDS, title="Train", tool="start_training", follow=("trained", "failed"))
        async def train(asked: TrainRunRequest, response: Response) -> dict[str, Any]:
            """Train."""
            response.headers["Location"] = "/v1/runs/r-1"
            return _run("queued")

        @router.get("/v1/runs/{run_id}")
        @operation(VIEWER, OPERATOR)
        async def run(run_id: str) -> dict[str, Any]:
            return _run(self.states.pop(0) if len(self.states) > 1 else self.states[0])

        return router

    async def _hold(self, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)  # real time: a service that takes so long
        except asyncio.CancelledError:
            self.broken_off.set()
            raise


@asynccontextmanager
async def served(
    service: str, router: APIRouter, settings: FleetSettings, phase: str | None = None
) -> AsyncIterator[str]:
    """The service's base URL, while it is served."""
    app = application(service, [router], settings, lambda: None, lambda: phase)
    async with serving(app, http="h11", lifespan="auto") as address:
        yield address


@asynccontextmanager
async def client_of(url: str, token: str | None = None, mode: str = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, verify=NO_TLS) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def with_keys(folder: Path) -> tuple[FleetSettings, dict[Role, str]]:
    """Settings of a fleet that asks for tokens, and a token for each role."""
    keys = KeyFolder(folder)
    keys.make()
    settings = FleetSettings(api_public_keys=keys.jwks, logs_dir=folder / "logs")
    key = keys.signing_key()
    names = {"issuer": settings.api_issuer, "audience": settings.api_audience}
    return settings, {role: issue(key, f"{role}-ann", role, 60, **names)[0] for role in Role}


def _result(response: str) -> dict[str, Any]:
    return {
        "task_id": "t-1",
        "response": response,
        "score": 1.0,
        "agent_id": "small",
        "adapter_version": "v1.0.0",
        "metadata": {"timestamp": MOMENT, "source": "ratchet"},
        "status": "ok",
        "reason": None,
        "sample": 0,
    }


def _history(task_id: str, text: str) -> dict[str, Any]:
    sample = {"text": text, "score": 1.0, "status": "ok", "reason": None, "finish_reason": "stop", "tokens": 3}
    return {
        "task_id": task_id,
        "sequence": 1,
        "state": "ok",
        "agent_id": "small",
        "input": "say x",
        "metadata": {"timestamp": MOMENT, "source": "mcp"},
        "reference": None,
        "criteria": None,
        "task_type": None,
        "session_id": None,
        "priority": 0,
        "admitted_at": MOMENT,
        "deadline": MOMENT,
        "closed_at": MOMENT,
        "arm": {"adapter_version": "v1.0.0", "adapter_sha256": None, "experiment_id": None, "is_candidate": False}
        | {"propensity": 1.0, "sequence": 1},
        "sampling": {"n": 8, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 256},
        "hops": [],
        "samples": [sample | {"index": index, "chosen": index == 0} for index in range(8)],
        "engine": "echo",
        "adapter_sha256": None,
        "scoring_agent_id": "verifier",
        "scorer": None,
        "result": _result(text),
    }


def _run(state: str) -> dict[str, Any]:
    return {
        "run_id": "r-1",
        "agent_id": "small",
        "state": state,
        "asked_by": "api:local",
        "why": None,
        "algorithm": "grpo",
        "parent_version": None,
        "hyperparameters": {},
        "seed": 0,
        "asked_at": MOMENT,
        "ended_at": None,
        "seconds": None,
        "attempts": 0,
        "progress": None,
        "adapter_version": None,
        "adapter_sha256": None,
        "reason": None,
        "counts": {},
        "metrics": {},
    }
