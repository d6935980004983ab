"""The OpenAPI documents that are checked in, one for each service installed here. `ratchet schema` writes them.

The services' routes are found by name: what is shared imports no container. Nothing is started: a router is made with
nothing behind it, since a document needs only its routes. That they are those of the real services is a test.
"""

from __future__ import annotations

import inspect
import json
from importlib.util import find_spec
from pkgutil import resolve_name

from fastapi import APIRouter

from ratchet.http.server.application import application
from ratchet.service.settings import FleetSettings

ROUTERS = {
    "agent": ("services.agent.api:agent_router",),
    "scorer": ("services.scorer.api:scorer_router",),
    "trainer": (
        "services.trainer.api:trainer_router",
        "ratchet.training_runs.api:trainings_router",
        "ratchet.training_runs.api:runs_router",
    ),
    "orchestrator": (
        "services.orchestrator.api.tasks:tasks_router",
        "services.orchestrator.api.chat:chat_router",
        "services.orchestrator.api.feedback:feedback_router",
        "services.orchestrator.api.page:page_router",
        "services.orchestrator.api.adapters:adapters_router",
        "services.orchestrator.api.experiments:experiments_router",
        "ratchet.training_runs.api:trainings_router",
        "services.orchestrator.api.queues:queues_router",
        "services.orchestrator.api.dead_letters:dead_letters_router",
        "services.orchestrator.api.status:status_router",
        "services.orchestrator.api.events:events_router",
        "services.orchestrator.api.log:log_router",
    ),
}


def openapi_documents() -> dict[str, str]:
    """File name relative to `schemas/generated/` → its text, newline at the end."""
    return {f"openapi/{name}.json": _text(name) for name in ROUTERS if find_spec(f"services.{name}") is not None}


def _text(service: str) -> str:
    routers = [_router(where) for where in ROUTERS[service]]
    app = application(service, routers, FleetSettings.model_construct(), lambda: None)
    return json.dumps(app.openapi(), indent=2, ensure_ascii=False) + "\n"


def _router(where: str) -> APIRouter:
    """Made with None for whatever its routes would ask."""
    make = resolve_name(where)
    router: APIRouter = make(*(None for _ in inspect.signature(make).parameters))
    return router
