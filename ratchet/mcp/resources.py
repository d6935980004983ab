"""Resources that a client may keep in its context: the log's tail, the registry, a task, an experiment, dead letters.

Each operation that names one (`x-mcp` of the OpenAPI document) is a resource: one GET of the REST API, as JSON. They
don't push: a client that wants to follow reads again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from ratchet.mcp.call import Call, Route
from ratchet.mcp.rest import CallFailed, Services, ask
from ratchet.mcp.tools import operations
from workbench.tools.bounds import TooBig, bound_value

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Readable:
    """A GET of a route under an address of its own; where the route has a variable, the address ends in it."""

    uri: str
    title: str
    route: Route
    description: str


def resources_of(service: str, document: Mapping[str, Any]) -> list[Readable]:
    """Return the resources of a service."""
    found = []
    for method, path, operation in operations(document):
        if name := operation["x-mcp"].get("resource"):
            route = Route(service, method, path)
            uri = f"ratchet://{name}" + ("/{+value}" if route.variables else "")
            found.append(Readable(uri, operation["summary"], route, " ".join(operation["description"].split())))
    return found


def add_resources(server: MCPServer[Any], resources: Iterable[Readable], services: Services) -> None:
    """Add the `resources`; each is read among the `services` when it is asked for."""
    for one in resources:
        add = server.resource(one.uri, name=one.title, title=one.title, description=one.description, mime_type=JSON)
        add(_reader(services, one))


def _reader(services: Services, one: Readable) -> Callable[..., Awaitable[str]]:
    async def read_fixed() -> str:
        return await _read(services, one.route, Call())

    async def read_one(value: str) -> str:
        return await _read(services, one.route, Call(path={one.route.variables[0]: value}))

    return read_one if one.route.variables else read_fixed


async def _read(services: Services, route: Route, call: Call) -> str:
    try:
        return bound_value(await ask(services, route, call, _ignore_progress)).text
    except CallFailed as failure:
        raise (ResourceNotFoundError if failure.status == 404 else ResourceError)(str(failure)) from None
    except TooBig as error:
        raise ResourceError(f"too big to read here ({error})") from None


async def _ignore_progress(waited_s: float, how: str) -> None:
    """Reading a resource has no progress to tell."""
