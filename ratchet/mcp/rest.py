"""Make a tool's call of the REST API, with the authorization of whoever called the tool, and in bounded time.

Roles, limits, audit and errors are the API's: a tool can do what its caller could do with curl, and nothing else.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from ratchet.service.errors import RatchetError

VARIABLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Route:
    """A route of a service, such as `POST /v1/adapters/{agent_id}/promote`."""

    service: str
    method: str
    template: str

    def path(self, values: Mapping[str, str]) -> str:
        """The template with each value in its place, percent-encoded, so that no value leads to another route."""
        return VARIABLE.sub(lambda found: quote(values[found[1]], safe=""), self.template)

    @property
    def variables(self) -> list[str]:
        """Return the names of the variables in the template."""
        return VARIABLE.findall(self.template)

    def __str__(self) -> str:
        return f"{self.method} {self.template}"


@dataclass(frozen=True, slots=True)
class Call:
    """The values of one call.

    `wait_s` is how long (seconds) the answer may take beyond the usual, because waiting is what was asked for.
    `follow`: the route answers at once with a `Location`; ask there until `state` is one of these, or the wait ends.
    `agent_id` chooses among the agents' services.
    """

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    wait_s: float = 0.0
    follow: tuple[str, ...] = ()
    agent_id: str | None = None


ANSWER_S = 30.0
"""Seconds a service may take for an answer, besides what the call itself asks to wait."""
POLL_S = 1.0

authorization: ContextVar[str | None] = ContextVar("authorization", default=None)
"""The header `Authorization` of the message being handled; None over stdio and on a fleet without tokens."""

Progress = Callable[[float, str], Awaitable[None]]
"""Told from time to time while something is waited for: seconds since its beginning, and how it stands."""


class CallFailed(RatchetError):
    """The call was refused, or brought nothing; the sentence is for whoever called the tool."""

    def __init__(self, sentence: str, status: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        """The HTTP status; None where there was no answer."""


class NotServed(CallFailed):
    """There is no service here that has the route."""


@dataclass(frozen=True, slots=True)
class Services:
    """The HTTP clients of the services that can be called. Agents have one each, under their id."""

    by_name: Mapping[str, httpx.AsyncClient]
    agents: Mapping[str, httpx.AsyncClient]

    @property
    def names(self) -> frozenset[str]:
        return frozenset({*self.by_name, *(("agent",) if self.agents else ())})

    def client(self, service: str, agent_id: str | None = None) -> httpx.AsyncClient:
        """Raises NotServed."""
        if service == "agent" and self.agents:
            return self._agent(agent_id)
        if service not in self.by_name:
            raise NotServed(f"no {service} is known here: name its address, or start the fleet")
        if agent_id is not None:
            raise NotServed("this is one agent's own server: leave agent_id out")
        return self.by_name[service]

    def _agent(self, agent_id: str | None) -> httpx.AsyncClient:
        if agent_id is None:
            return next(iter(self.agents.values()))
        if agent_id not in self.agents:
            raise NotServed(f"there is no agent {agent_id!r} here; there are {', '.join(self.agents)}")
        return self.agents[agent_id]


async def ask(services: Services, route: Route, call: Call, progress: Progress) -> Any:
    """The JSON that the route answers with. Raises CallFailed."""
    client = services.client(route.service, call.agent_id)
    ticking = asyncio.create_task(_tick(progress, call)) if call.wait_s and not call.follow else None
    try:
        return await _ask(client, route, call, progress)
    finally:
        if ticking is not None:
            ticking.cancel()


async def _ask(client: httpx.AsyncClient, route: Route, call: Call, progress: Progress) -> Any:
    began = time.monotonic()
    answer = await _request(client, route, route.path(call.path), call)
    place = answer.headers.get("location")
    if not call.follow or place is None:
        return _json(answer, route)
    end = began + call.wait_s
    found = _json(answer, route)
    while found.get("state") not in call.follow and time.monotonic() < end:
        await asyncio.sleep(min(POLL_S, max(end - time.monotonic(), 0.0)))
        found = _json(await _request(client, Route(route.service, "GET", place), place, Call()), route)
        await progress(time.monotonic() - began, str(found.get("state")))
    return found


async def _request(client: httpx.AsyncClient, route: Route, path: str, call: Call) -> httpx.Response:
    limit_s = ANSWER_S + (0.0 if call.follow else call.wait_s)
    forwarded = authorization.get()
    headers = {"Authorization": forwarded} if forwarded else {}
    try:
        async with asyncio.timeout(limit_s):
            answer = await client.request(
                route.method, path, params=call.query, json=call.body, headers=headers, timeout=limit_s
            )
    except (TimeoutError, httpx.TimeoutException):
        raise CallFailed(
            f"the {route.service} did not answer within {limit_s:.0f} s; it may still do what was asked"
        ) from None
    except RatchetError as error:  # of the client's own: its token can't be read
        raise CallFailed(str(error)) from None
    except httpx.HTTPError as error:
        raise CallFailed(f"the {route.service} can't be reached ({error}): is it running?  ratchet status") from None
    if answer.is_error:
        raise CallFailed(_sentence(answer, route), answer.status_code)
    return answer


async def _tick(progress: Progress, call: Call) -> None:
    """Tell how long it has been waited, which also keeps a client from giving up."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(POLL_S)
        waited = time.monotonic() - began
        await progress(waited, f"waiting for the answer: {waited:.0f} s of at most {call.wait_s:.0f} s")


def _json(answer: httpx.Response, route: Route) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise CallFailed(f"{route} of the {route.service} answered with no JSON: is it another program?") from None


def _sentence(answer: httpx.Response, route: Route) -> str:
    """Return the message of a problem document, with the fields at fault."""
    try:
        problem = answer.json()
        faults = [f"{fault['pointer']}: {fault['detail']}" for fault in problem.get("errors") or ()]
        sentence = "; ".join([problem.get("detail") or problem["title"], *faults])
    except (ValueError, KeyError, TypeError, AttributeError):
        sentence = answer.reason_phrase
    again = answer.headers.get("retry-after")
    return f"{answer.status_code} from {route}: {sentence}" + (f" (try again in {again} s)" if again else "")
