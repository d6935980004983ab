"""What a client may read and keep in its context: the log's tail, the registry, a task, an experiment, dead letters.

Each resource is one GET of the REST API, as JSON. They don't push: a client that wants to follow reads again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.server.mcpserver.resources import Resource
from pydantic import PrivateAttr

from ratchet.mcp.bounds import TooBig, bounded
from ratchet.mcp.call import Call, Route
from ratchet.mcp.rest import CallFailed, Services, ask

JSON = "application/json"
TAIL = 50

Read = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A resource without a variable in its address."""

    uri: str
    title: str
    route: Route
    description: str
    query: tuple[tuple[str, str | int], ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """A resource whose address ends in one variable, which is also the route's."""

    uri: str
    title: str
    route: Route
    description: str
    variable: str


FIXED = (
    Fixed(
        "ratchet://log/tail",
        "The log's tail",
        Route("orchestrator", "GET", "/v1/log"),
        f"The newest {TAIL} samples, the newest last: what was asked, answered and scored, by which adapter version.",
        (("limit", TAIL),),
    ),
    Fixed(
        "ratchet://registry",
        "The adapter registry",
        Route("orchestrator", "GET", "/v1/adapters"),
        "Every agent's adapter versions: state, aliases, lineage, how their experiments ended.",
    ),
    Fixed(
        "ratchet://decisions",
        "The newest decisions",
        Route("orchestrator", "GET", "/v1/decisions"),
        "What was promoted, rolled back, frozen …: by whom, why, and on what evidence. The newest first.",
    ),
    Fixed(
        "ratchet://trainings",
        "The newest trainings",
        Route("orchestrator", "GET", "/v1/trainings"),
        "Training runs: what each made, how far it is, or why it came to nothing. The newest first.",
    ),
    Fixed(
        "ratchet://dead-letters",
        "The dead letters",
        Route("orchestrator", "GET", "/v1/dead-letters"),
        "Messages that could not be handled, and why.",
    ),
    Fixed(
        "ratchet://status",
        "The fleet at a glance",
        Route("orchestrator", "GET", "/v1/status"),
        "Readiness, tasks, stages, scores by adapter version, agents, dead letters.",
    ),
    Fixed(
        "ratchet://loaded-adapters",
        "Adapters loaded by the agent",
        Route("agent", "GET", "/v1/adapters"),
        "The versions the agent can answer with now.",
    ),
    Fixed("ratchet://runs", "The trainer's runs", Route("trainer", "GET", "/v1/runs"), "As the trainer has them."),
)
TEMPLATES = (
    Template(
        "ratchet://tasks/{+task_id}",
        "A task",
        Route("orchestrator", "GET", "/v1/tasks/{task_id}"),
        "One task's whole history: hops, samples, scores and reasons, result.",
        "task_id",
    ),
    Template(
        "ratchet://experiments/{experiment_id}",
        "An experiment",
        Route("orchestrator", "GET", "/v1/experiments/{experiment_id}"),
        "One experiment: verdict, e-values, both arms, the band over time.",
        "experiment_id",
    ),
    Template(
        "ratchet://trainings/{run_id}",
        "A training",
        Route("orchestrator", "GET", "/v1/trainings/{run_id}"),
        "One training run: state, progress, curves, reasons.",
        "run_id",
    ),
    Template(
        "ratchet://dead-letters/{letter_id}",
        "A dead letter",
        Route("orchestrator", "GET", "/v1/dead-letters/{letter_id}"),
        "One dead letter whole, and what to do about it.",
        "letter_id",
    ),
    Template(
        "ratchet://runs/{run_id}",
        "A training run",
        Route("trainer", "GET", "/v1/runs/{run_id}"),
        "One training run: state, progress, curves, reasons.",
        "run_id",
    ),
)


class RestResource(Resource):
    """Read at each time it is asked for."""

    _read: Read = PrivateAttr()

    @classmethod
    def of(cls, fixed: Fixed, read: Read) -> RestResource:
        resource = cls(
            uri=fixed.uri, name=fixed.title, title=fixed.title, description=fixed.description, mime_type=JSON
        )
        resource._read = read
        return resource

    async def read(self) -> str:
        return await self._read()


def add_resources(server: MCPServer[Any], services: Services) -> None:
    """Those whose service is among the `services`."""
    for fixed in FIXED:
        if fixed.route.service in services.names:
            server.add_resource(RestResource.of(fixed, _reader(services, fixed.route, Call(query=dict(fixed.query)))))
    for template in TEMPLATES:
        if template.route.service in services.names:
            _add_template(server, services, template)


def _add_template(server: MCPServer[Any], services: Services, template: Template) -> None:
    async def read(value: str) -> str:
        return await _reader(services, template.route, Call(path={template.variable: value}))()

    add = server.resource(
        template.uri.replace(template.variable, "value"),
        name=template.title,
        title=template.title,
        description=template.description,
        mime_type=JSON,
    )
    add(read)


def _reader(services: Services, route: Route, call: Call) -> Read:
    async def read() -> str:
        try:
            return bounded(await ask(services, route, call, _untold)).text
        except CallFailed as failure:
            raise (ResourceNotFoundError if failure.status == 404 else ResourceError)(str(failure)) from None
        except TooBig as error:
            raise ResourceError(f"too big to read here ({error})") from None

    return read


async def _untold(waited_s: float, how: str) -> None:
    """Reading a resource has no progress to tell."""
