"""Build the MCP server of the services that can be called: of one, mounted in it, or of all (`ratchet mcp`).

`tools/list` has only what the caller's role may call. That is a courtesy to the model that reads the list, no
protection: the REST API checks each call, whatever was listed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from pydantic import Field
from starlette.requests import Request

from ratchet.http.access.roles import Role
from ratchet.mcp.in_process import caller_address
from ratchet.mcp.rest import Call, CallFailed, Route, Services, ask, authorization
from ratchet.mcp.tool_runner import tool_of
from ratchet.mcp.tools import ToolSpec, operations, tools_of
from workbench.tools.bounds import TooBig, bound_value


def why_rolled_back(
    agent_id: Annotated[str, Field(description="The agent, such as small.")],
    version: Annotated[str, Field(description="The adapter version, such as v1.0.2.")],
) -> str:
    """Explain why an adapter was rolled back or rejected, from the evidence of the decision."""
    return f"""Why was adapter {version} of agent {agent_id} rolled back (or rejected)?

1. show_adapter: in its decisions, the newest first, find the move away from traffic: who made it, on what evidence.
2. experiment_status of the experiment that the decision names: which metric was harmed (score, success, length or
   latency; an e-value at the plan's roll_back_at rolls back), by how much, over how many units of each arm, and how the
   band moved.
3. list_tasks, then get_task for two or three tasks that this version answered badly: what did the scorer say of them?
4. Its card and training curves: was the data window narrow, the reward flat, the loss unusual?

Answer in five sentences: what happened, the evidence in numbers, what probably caused it, whether the fleet decided
rightly, and what to change before the next training. Say what you could not see. Change nothing."""


def investigate_task(task_id: Annotated[str, Field(description="The task's id.")]) -> str:
    """Find out what became of one task, and why the answer is as it is."""
    return f"""What became of task {task_id}, and why?

1. get_task: its state, the hops with their seconds, every sample with its score and reason, the arm it was assigned.
2. If it is open: which hop has it now? queues shows whether messages wait there and whether anyone consumes them.
3. If it failed or expired: the result's reason; list_dead_letters for a message about it.
4. If it was answered badly: compare the chosen sample with the others; show_adapter of its version; was it a candidate?

Answer with a short timeline, the cause, and one proposal. Change nothing without being asked."""


def morning_check() -> str:
    """A look over the whole fleet, as at the start of a day."""
    return """Check the fleet and report as you would to the person who runs it.

1. fleet_status: is it ready? Tasks open and the oldest of them, failures and expiries, seconds at each stage, scores.
2. queues: does anything pile up, or wait where nobody consumes?
3. list_dead_letters: group them by reason.
4. list_adapters: what became primary, was rolled back, or is frozen since yesterday? experiment_status of each running
   experiment: how far is it, is it heading anywhere, is there harm?
5. list_trainings: what was trained, refused or failed, and why?

Report: one line for the whole (all well, or the worst thing); then only what deserves attention, the most urgent first,
each with its number and the next step. Propose changes (promote, rollback, freeze, requeue_dead_letters); make none."""


def judge_candidate(agent_id: Annotated[str, Field(description="The agent, such as small.")]) -> str:
    """Judge whether to step in on the adapter that is being tried now."""
    return f"""Agent {agent_id} is trying a candidate adapter. Should a person step in?

1. list_adapters: the candidate, its parent, and its experiment.
2. experiment_status: gain and harm e-values (the plan's promote_at and roll_back_at decide), units per arm, the share,
   the band, what is still missing.
3. show_adapter of the candidate and of the primary: what was it trained on, how did its curves look?

The fleet promotes only on proof and rolls harm back by itself, so the default is to wait. Argue for promote, rollback
or freeze only with a number that supports it. Recommend one of: wait, promote, rollback, freeze. Change nothing."""


PROMPTS = (morning_check, investigate_task, why_rolled_back, judge_candidate)


def add_prompts(server: MCPServer[Any]) -> None:
    for prompt in PROMPTS:
        server.prompt(title=prompt.__name__.replace("_", " ").capitalize())(prompt)


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


INSTRUCTIONS = (
    "A Ratchet fleet: a small model answers tasks, a bigger one scores the answers, and adapters trained on the scored "
    "answers take over only when live traffic has proved them better. Begin with fleet_status where you have it. Tools "
    "that change something are marked; ask your user before promote and rollback."
)

RoleOf = Callable[[ServerRequestContext[Any, Any]], Role | None]
"""The caller's role; None where it is not known here, so that every tool is listed."""


def build_server(
    name: str, documents: Mapping[str, Mapping[str, Any]], services: Services, role_of: RoleOf
) -> MCPServer[Any]:
    """Build it with the tools and resources of the `services`, and the prompts where the orchestrator is among them.

    `documents`: their OpenAPI documents, by service.
    """
    several = {"agent"} if services.agents else set()
    specs = [one for name, it in documents.items() for one in tools_of(name, it, chooses_agent=name in several)]
    server: MCPServer[Any] = MCPServer(
        name,
        instructions=INSTRUCTIONS,
        tools=[tool_of(spec, services) for spec in specs],
        log_level="WARNING",
        subscriptions=False,
        middleware=(_with_authorization, _Listing(specs, role_of)),
    )
    add_resources(server, [one for name, it in documents.items() for one in resources_of(name, it)], services)
    if "orchestrator" in documents:
        add_prompts(server)
    return server


def role_of_request(context: ServerRequestContext[Any, Any]) -> Role | None:
    """Return the role that the guard found, for a server that is mounted in a service."""
    request = context.request
    return request.scope["state"]["caller"].role if isinstance(request, Request) else None


async def _with_authorization(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Add the caller's authorization header to every call of the API; it decides what the caller may do."""
    request = ctx.request if isinstance(ctx.request, Request) else None
    headers = request.headers if request else {}
    key = headers.get("x-api-key")  # which the guard takes, too
    authorization.set(headers.get("authorization") or (f"Bearer {key}" if key else None))
    if request and request.client:
        caller_address.set(request.client)
    return await call_next(ctx)


class _Listing:
    """Leaves out of `tools/list` (as it goes over the wire) what the caller may not call."""

    def __init__(self, specs: list[ToolSpec], role_of: RoleOf) -> None:
        self._roles = {spec.name: spec.roles for spec in specs}
        self._role_of = role_of

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        role = self._role_of(ctx) if ctx.method == "tools/list" else None
        if role is None or not isinstance(result, dict):
            return result
        allowed = [tool for tool in result["tools"] if role in self._roles[tool["name"]]]
        return result | {"tools": allowed}
