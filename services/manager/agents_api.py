"""/v1/agents: agents that are registered while the fleet runs. Runners fetch their programs, and report on them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Response

from ratchet.http.access.guard import CallerOf
from ratchet.http.operation import ADMIN, OPERATOR, OWN_TASKS, RUNNER, VIEWER, Effect, operation
from ratchet.http.paging import Cursor, Limit, cursor_of, place_of
from ratchet.http.problem import problems
from schemas.api.agents import AgentChange, AgentMetrics, AgentsPrograms, NewAgent, RegisteredAgent, RunnerReport
from schemas.api.page import Page
from schemas.messages.base import AgentId
from services.manager.agents import Agents

TheAgent = Annotated[AgentId, Path(description="The agent's name.")]


def agents_router(agents: Agents) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["agents"])

    @router.post("/agents", status_code=201, responses=problems(403, 404, 409, 422, 429, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.SETS, title="Register an agent", tool="register_agent")
    async def register_agent(
        asked: Annotated[NewAgent, Body()], caller: CallerOf, response: Response
    ) -> RegisteredAgent:
        """Register an agent: a program that answers tasks in a sandbox, with the model of one of the fleet's agents.
        Nothing is restarted; `submit_job` names it as the job's agent. The same agent again changes nothing.
        """
        found = await agents.add(asked, caller)
        response.headers["Location"] = f"/v1/agents/{found.name}"
        return found

    @router.get("/agents", responses=problems(422, 503))
    @operation(VIEWER, OWN_TASKS, OPERATOR, ADMIN, title="List registered agents", tool="list_registered_agents")
    async def list_registered_agents(
        caller: CallerOf, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[RegisteredAgent]:
        """List the agents that were registered while the fleet ran, with their states; a submitter's are its own and
        those that anybody may use.
        """
        place = place_of(cursor, str)
        found = await agents.page(caller, "" if place is None else str(place[0]), limit)
        return Page(items=found, next=cursor_of([found[-1].name]) if len(found) == limit else None)

    @router.get("/agents/{name}", responses=problems(404, 422, 503))
    @operation(VIEWER, OWN_TASKS, OPERATOR, title="Show a registered agent", tool="get_registered_agent")
    async def get_registered_agent(name: TheAgent, caller: CallerOf) -> RegisteredAgent:
        """Show an agent's program, its rules, its state, and the reason for that."""
        return await agents.get(name, caller)

    @router.get("/agents/{name}/metrics", responses=problems(404, 422, 503))
    @operation(VIEWER, OWN_TASKS, OPERATOR, title="Show an agent's figures", tool="get_agent_metrics")
    async def get_agent_metrics(name: TheAgent, caller: CallerOf) -> AgentMetrics:
        """Show an agent's tasks by state, its mean score, and what it took and cost."""
        return await agents.metrics(name, caller)

    @router.patch("/agents/{name}", responses=problems(404, 409, 422, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.SETS, title="Change an agent")
    async def change_agent(name: TheAgent, wanted: Annotated[AgentChange, Body()], caller: CallerOf) -> RegisteredAgent:
        """Change the fields of an agent that are given. Tasks that begin later have the new program."""
        return await agents.change(name, wanted, caller)

    @router.delete("/agents/{name}", responses=problems(404, 422, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.REPLACES, title="Remove an agent")
    async def remove_agent(name: TheAgent, caller: CallerOf) -> RegisteredAgent:
        """Take no further job of an agent. The jobs that it has go on; cancel them to end it at once."""
        return await agents.retire(name, caller)

    @router.post("/runner-reports", responses=problems(422, 503))
    @operation(RUNNER, OPERATOR, effect=Effect.WORKS, title="Report of a runner")
    async def report_runner(report: Annotated[RunnerReport, Body()]) -> AgentsPrograms:
        """Take how far a runner is with each agent, and answer with the programs that it is to have."""
        return await agents.report(report)

    return router
