"""`ratchet schema`: the contract as documents, in schemas/generated/: a JSON Schema for each message, an AsyncAPI 3.0
description of the queues, and an OpenAPI document for each service installed here.
"""

from __future__ import annotations

import inspect
import json
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from fastapi import APIRouter

from ratchet.bus.topology import EXCHANGE, Queue, Topology, fleet_topology
from ratchet.http.server.application import application
from ratchet.service.settings import FleetSettings
from schemas import MESSAGES, RECORDS
from schemas.messages.base import Message
from services.cli.terminal import CommandError, say


def schema(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit code 1 if one is not current.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the documents.")] = Path("schemas/generated"),
) -> None:
    changed = {
        out / name: text for name, text in (documents() | openapi_documents()).items() if _read(out / name) != text
    }
    if check and changed:
        raise CommandError(f"not current: {', '.join(map(str, changed))}. Type: ratchet schema")
    for file, text in changed.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        say(f"written: {file}")
    if not changed:
        say(f"all documents in {out} are current")


def _read(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.exists() else None


DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXAMPLE_AGENT = "small"


def documents() -> dict[str, str]:
    """File name relative to `schemas/generated/` → its text, newline at the end."""
    models = (*MESSAGES, *RECORDS)
    found = {f"json/{model.TYPE}.schema.json": _text(json_schema(model)) for model in models}
    found["asyncapi.json"] = _text(
        asyncapi(fleet_topology((EXAMPLE_AGENT,), external_scorer=True, auditor=True, programs=True))
    )
    return found


def json_schema(model: type[Message]) -> dict[str, Any]:
    """Return it as a publisher needs it: what may be sent, with every default optional."""
    return {"$schema": DIALECT, "$id": f"{model.TYPE}.schema.json", **model.model_json_schema(mode="validation")}


def asyncapi(topology: Topology) -> dict[str, Any]:
    """Every queue as a channel with its message, its bounds, and who sends and receives."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Ratchet",
            "version": "1.0.0",
            "description": "Publish a task.v1 to the queue `tasks`, read its result.v1. Agents of this example fleet: "
            f"{EXAMPLE_AGENT}. All queues are bound to the durable topic exchange `{EXCHANGE}` by their own names.",
        },
        "defaultContentType": "application/json",
        "channels": {queue.name: _channel(queue) for queue in topology.queues},
        "operations": {name: body for queue in topology.queues for name, body in _operations(queue)},
        "components": {
            "messages": {
                model.TYPE: {
                    "name": model.TYPE,
                    "summary": (model.__doc__ or "").split("\n")[0],
                    "payload": {
                        "schemaFormat": "application/schema+json;version=draft-2020-12",
                        "schema": {"$ref": f"json/{model.TYPE}.schema.json"},
                    },
                    "bindings": {"amqp": {"contentEncoding": "UTF-8", "messageType": model.TYPE}},
                }
                for model in MESSAGES
            }
        },
    }


def _channel(queue: Queue) -> dict[str, Any]:
    known = [model.TYPE for model in MESSAGES if queue.message in (model.TYPE, "any")]
    return {
        "address": queue.name,
        "description": queue.about,
        "messages": {type_: {"$ref": f"#/components/messages/{type_}"} for type_ in known},
        "bindings": {
            "amqp": {
                "is": "queue",
                "queue": {"name": queue.name, "durable": True, "exclusive": False, "autoDelete": False},
            }
        },
        "x-queue-arguments": queue.arguments,
    }


def _operations(queue: Queue) -> list[tuple[str, dict[str, Any]]]:
    channel = {"$ref": f"#/channels/{queue.name}"}
    return [
        (
            f"{who.replace(' ', '-')}-{verb}-{queue.name}",
            {"action": action, "channel": channel, "summary": f"By: {who}."},
        )
        for action, verb, people in (("send", "publishes", queue.producers), ("receive", "consumes", queue.consumers))
        for who in people
    ]


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


ROUTERS = {
    "manager": (
        "services.manager.api:jobs_router",
        "services.manager.api:usage_router",
        "services.manager.api:agents_router",
    ),
    "agent": ("services.agent.api:agent_router",),
    "runner": ("services.runner.progress:runner_router",),
    "scorer": ("services.scorer.api:scorer_router",),
    "trainer": ("services.trainer.api:trainer_router", "ratchet.runs.api:runs_router"),
    "orchestrator": (
        "services.orchestrator.api.tasks:tasks_router",
        "services.orchestrator.api.chat:chat_router",
        "services.orchestrator.api.feedback:feedback_router",
        "services.orchestrator.api.feedback:agreement_router",
        "services.orchestrator.api.feedback:approvals_router",
        "services.orchestrator.api.page:page_router",
        "services.orchestrator.api.adapters:adapters_router",
        "services.orchestrator.api.cascades:cascades_router",
        "services.orchestrator.api.experiments:evaluations_router",
        "services.orchestrator.api.experiments:experiments_router",
        "services.orchestrator.api.programs:programs_router",
        "services.orchestrator.api.fleet:rollouts_router",
        "ratchet.runs.api:trainings_router",
        "services.orchestrator.api.fleet:queues_router",
        "services.orchestrator.api.dead_letters:dead_letters_router",
        "services.orchestrator.api.fleet:status_router",
        "services.orchestrator.api.events:events_router",
        "services.orchestrator.api.fleet:log_router",
    ),
}
"""The routers of each service, found by name, since what is shared imports no process. A router is made with nothing
behind it, since a document needs only its routes. That they are those of the real services is a test.
"""


def openapi_documents() -> dict[str, str]:
    """File name relative to `schemas/generated/` → its text, newline at the end."""
    return {
        f"openapi/{name}.json": _text(openapi(name)) for name in ROUTERS if find_spec(f"services.{name}") is not None
    }


def openapi(service: str) -> dict[str, Any]:
    routers = [_router(where) for where in ROUTERS[service]]
    return application(service, routers, FleetSettings.model_construct(), lambda: None).openapi()


def _router(where: str) -> APIRouter:
    """Made with None for whatever its routes would ask."""
    make = resolve_name(where)
    router: APIRouter = make(*(None for _ in inspect.signature(make).parameters))
    return router
