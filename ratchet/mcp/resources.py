"""Resources that a client may keep in its context: the log's tail, the registry, a task, an experiment, dead letters.

Each resource is one GET of the REST API, as JSON. They don't push: a client that wants to follow reads again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from ratchet.mcp.call import VARIABLE, Call, Route
from ratchet.mcp.rest import CallFailed, Services, ask
from workbench.tools.bounds import TooBig, bound_value

JSON = "application/json"
TAIL = 50


@dataclass(frozen=True, slots=True)
class Readable:
    """A GET of a route under an address of its own; where the route has a variable, the address ends in it."""

    uri: str
    title: str
    route: Route
    description: str
    query: tuple[tuple[str, str | int], ...] = ()

    @property
    def variable(self) -> str | None:
        found = VARIABLE.search(self.route.template)
        return found[1] if found else None


FIXED = (
    Readable(
        "ratchet://log/tail",
        "The log's tail",
        Route("orchestrator", "GET", "/v1/log"),
        f"The newest {TAIL} samples, the newest last: what was asked, answered and scored, by which adapter version.",
        (("limit", TAIL),),
    ),
    Readable(
        "ratchet://registry",
        "The adapter registry",
        Route("orchestrator", "GET", "/v1/adapters"),
        "Every agent's adapter versions: state, aliases, lineage, how their experiments ended.",
    ),
    Readable(
        "ratchet://decisions",
        "The newest decisions",
        Route("orchestrator", "GET", "/v1/decisions"),
        "What was promoted, rolled back, frozen …: by whom, why, and on what evidence. The newest first.",
    ),
    Readable(
        "ratchet://trainings",
        "The newest trainings",
        Route("orchestrator", "GET", "/v1/trainings"),
        "Training runs: what each made, how far it is, or why it came to nothing. The newest first.",
    ),
    Readable(
        "ratchet://dead-letters",
        "The dead letters",
        Route("orchestrator", "GET", "/v1/dead-letters"),
        "Messages that could not be handled, and why.",
    ),
    Readable(
        "ratchet://status",
        "The fleet at a glance",
        Route("orchestrator", "GET", "/v1/status"),
        "Readiness, tasks, stages, scores by adapter version, agents, dead letters.",
    ),
    Readable(
        "ratchet://loaded-adapters",
        "Adapters loaded by the agent",
        Route("agent", "GET", "/v1/adapters"),
        "The versions the agent can answer with now.",
    ),
    Readable("ratchet://runs", "The trainer's runs", Route("trainer", "GET", "/v1/runs"), "As the trainer has them."),
)
TEMPLATES = (
    Readable(
        "ratchet://tasks/{+task_id}",
        "A task",
        Route("orchestrator", "GET", "/v1/tasks/{task_id}"),
        "One task's whole history: hops, samples, scores and reasons, result.",
    ),
    Readable(
        "ratchet://experiments/{experiment_id}",
        "An experiment",
        Route("orchestrator", "GET", "/v1/experiments/{experiment_id}"),
        "One experiment: verdict, e-values, both arms, the band over time.",
    ),
    Readable(
        "ratchet://trainings/{run_id}",
        "A training",
        Route("orchestrator", "GET", "/v1/trainings/{run_id}"),
        "One training run: state, progress, curves, reasons.",
    ),
    Readable(
        "ratchet://dead-letters/{letter_id}",
        "A dead letter",
        Route("orchestrator", "GET", "/v1/dead-letters/{letter_id}"),
        "One dead letter whole, and what to do about it.",
    ),
    Readable(
        "ratchet://runs/{run_id}",
        "A training run",
        Route("trainer", "GET", "/v1/runs/{run_id}"),
        "One training run: state, progress, curves, reasons.",
    ),
)


def add_resources(server: MCPServer[Any], services: Services) -> None:
    """Those whose service is among the `services`; each is read when it is asked for."""
    for one in (*FIXED, *TEMPLATES):
        if one.route.service in services.names:
            uri = one.uri.replace(one.variable, "value") if one.variable else one.uri
            add = server.resource(uri, name=one.title, title=one.title, description=one.description, mime_type=JSON)
            add(_reader(services, one))


def _reader(services: Services, one: Readable) -> Callable[..., Awaitable[str]]:
    async def read_fixed() -> str:
        return await _read(services, one.route, Call(query=dict(one.query)))

    async def with_variable(value: str) -> str:
        return await _read(services, one.route, Call(path={str(one.variable): value}))

    return with_variable if one.variable else read_fixed


async def _read(services: Services, route: Route, call: Call) -> str:
    try:
        return bound_value(await ask(services, route, call, _ignore_progress)).text
    except CallFailed as failure:
        raise (ResourceNotFoundError if failure.status == 404 else ResourceError)(str(failure)) from None
    except TooBig as error:
        raise ResourceError(f"too big to read here ({error})") from None


async def _ignore_progress(waited_s: float, how: str) -> None:
    """Reading a resource has no progress to tell."""
