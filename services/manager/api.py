"""/v1/jobs: many tasks at once, in their turn. /v1/usage, /v1/tenants: what they cost, and what they may."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Response
from starlette.convertors import StringConvertor, register_url_convertor

from ratchet.http.access.guard import CallerOf
from ratchet.http.operation import ADMIN, OPERATOR, OWN_TASKS, RUNNER, VIEWER, Effect, operation
from ratchet.http.paging import Cursor, Limit, cursor_of, place_of
from ratchet.http.problem import problems
from schemas.api.agents import AgentChange, AgentMetrics, AgentsPrograms, NewAgent, RegisteredAgent, RunnerReport
from schemas.api.jobs import (
    Job,
    JobDetail,
    JobKey,
    JobResult,
    JobState,
    JobSubmission,
    Money,
    MoreTasks,
    TenantQuota,
    TenantUse,
    Usage,
    UsageKey,
)
from schemas.api.page import Page
from schemas.messages.base import AgentId
from services.manager.agents import Agents
from services.manager.jobs import Jobs

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
        """Show an agent's tasks by state, its mean score, and what it took and cost. A submitter is shown its own."""
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


JSONL = "application/jsonl"
TheJob = Annotated[JobKey, Path(description="The job's id.")]

LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {JSONL: {"schema": {"type": "string"}}},
        "description": "A page, or lines where they are asked for.",
    }
}


class JobConvertor(StringConvertor):
    """Takes an id, with its tenant where that is not the caller's: so `0/pause` is never the id of a job."""

    regex = "(?:tenant:[^/]+/)?[^/]+"


register_url_convertor("job", JobConvertor())


def jobs_router(jobs: Jobs) -> APIRouter:
    router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

    @router.post("", responses=problems(402, 404, 409, 422, 429, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.WORKS, title="Submit a job", tool="submit_job")
    async def submit_job(asked: Annotated[JobSubmission, Body()], caller: CallerOf) -> Job:
        """Submit many tasks as one job. They wait in the manager and go to the fleet in their turn: by priority within
        a tenant, in fair shares between tenants. The same `job_id` sent again is the same job. A line that is no task
        refuses the job whole. Ask `get_job` how far it is.
        """
        job, _ = await jobs.submit(asked, caller)
        return job

    @router.post("/{job_id:job}/tasks", responses=problems(402, 404, 409, 422, 429, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.WORKS, title="Add tasks to a job")
    async def add_tasks(job_id: TheJob, given: Annotated[MoreTasks, Body()], caller: CallerOf) -> Job:
        """Add tasks to a job that was submitted with `more`. Tasks that it has by these numbers are passed over, so a
        call that was cut off can be sent again.
        """
        return await jobs.add_tasks(job_id, given, caller)

    @router.get("", responses=problems(422, 503))
    @operation(VIEWER, OWN_TASKS, OPERATOR, ADMIN, title="List jobs", tool="list_jobs")
    async def list_jobs(
        caller: CallerOf,
        state: Annotated[JobState | None, Query(description="Only those.")] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Page[Job]:
        """List jobs with their states, the newest first; a submitter's are its own."""
        place = place_of(cursor, str)
        found = await jobs.page(caller, state, None if place is None else str(place[0]), limit)
        return Page(items=found, next=cursor_of([found[-1].job_id]) if len(found) == limit else None)

    @router.get("/{job_id:job}/results", response_model=Page[JobResult], responses=LINES | problems(404, 422, 503))
    @operation(VIEWER, OWN_TASKS, OPERATOR, title="Read a job's results", tool="get_job_results", hides=("jsonl",))
    async def get_results(
        job_id: TheJob,
        caller: CallerOf,
        limit: Limit = 50,
        cursor: Cursor = None,
        jsonl: Annotated[bool, Query(description="Answer with a result a line; header X-Next has the cursor.")] = False,
    ) -> Any:
        """Read the tasks of a job that have ended, in the order in which they did. `next` is given as long as there
        may be more: while the job runs, ask again with it.
        """
        place = place_of(cursor, int)
        after = 0 if place is None else min(max(0, int(place[0])), 2**31 - 1)
        found, has_more = await jobs.results(job_id, caller, after, limit)
        following = cursor_of([found[-1].place]) if found else cursor
        if not jsonl:
            return Page(items=found, next=following if has_more else None)
        lines = "".join(f"{one.model_dump_json()}\n" for one in found)
        return Response(lines, media_type=JSONL, headers={"X-Next": following} if following else {})

    @router.get("/{job_id:job}", responses=problems(404, 503))
    @operation(VIEWER, OWN_TASKS, OPERATOR, title="Show a job", tool="get_job", resource="jobs")
    async def get_job(job_id: TheJob, caller: CallerOf) -> JobDetail:
        """Show how far a job is: its state and the reason for it, tasks by state, failures by reason, and the seconds
        left at the rate of the last minute.
        """
        return await jobs.get(job_id, caller)

    @router.post("/{job_id:job}/pause", responses=problems(404, 409, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.SETS, title="Pause a job", tool="pause_job")
    async def pause_job(job_id: TheJob, caller: CallerOf) -> Job:
        """Release no further task of a job. What the fleet has goes on, and its results are kept."""
        return await jobs.pause(job_id, caller)

    @router.post("/{job_id:job}/resume", responses=problems(402, 404, 409, 422, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.SETS, title="Resume a job", tool="resume_job")
    async def resume_job(
        job_id: TheJob,
        caller: CallerOf,
        budget: Annotated[Money | None, Query(description="Its budget from now on; as it was if absent.")] = None,
    ) -> Job:
        """Release the tasks of a paused job to the fleet again, in their turn; with a larger budget where that was used
        up.
        """
        return await jobs.resume(job_id, budget, caller)

    @router.post("/{job_id:job}/cancel", responses=problems(404, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.REPLACES, title="Cancel a job", tool="cancel_job")
    async def cancel_job(job_id: TheJob, caller: CallerOf) -> Job:
        """End a job: tasks that wait are not run. What the fleet has ends by itself, and its results are kept."""
        return await jobs.cancel(job_id, caller)

    @router.post("/{job_id:job}/rerun", responses=problems(404, 409, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.WORKS, title="Run failed tasks again", tool="rerun_job")
    async def rerun_job(job_id: TheJob, caller: CallerOf) -> Job:
        """Run the tasks of a job again that failed, expired or were cancelled."""
        return await jobs.rerun(job_id, caller)

    return router


TheTenant = Annotated[str, Path(min_length=1, max_length=100, description="The tenant, as its jobs name it.")]


def usage_router(jobs: Jobs) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["usage"])

    @router.get("/usage", responses=problems(422, 503))
    @operation(VIEWER, OWN_TASKS, OPERATOR, ADMIN, title="Show usage", tool="get_usage")
    async def get_usage(
        caller: CallerOf, by: Annotated[UsageKey, Query(description="One row for each.")] = "day", limit: Limit = 50
    ) -> Usage:
        """Show the tokens that jobs took and what they cost: the newest days first, or the agents or jobs that cost
        most. What came to nothing cost nothing. A submitter is shown its own.
        """
        return await jobs.usage(by, limit, caller)

    @router.get("/tenants/{tenant}/quota", responses=problems(404, 422, 503))
    @operation(VIEWER, OPERATOR, ADMIN, reach="own", title="Show a quota", tool="get_quota")
    async def get_quota(tenant: TheTenant, caller: CallerOf) -> TenantUse:
        """Show the limits of a tenant's jobs, and what it has used of them. Null: no limit."""
        return await jobs.tenant_use(tenant, caller)

    @router.put("/tenants/{tenant}/quota", responses=problems(422, 503))
    @operation(OPERATOR, ADMIN, effect=Effect.SETS, title="Set a quota")
    async def set_quota(tenant: TheTenant, given: Annotated[TenantQuota, Body()]) -> TenantUse:
        """Set the limits of a tenant's jobs. What was submitted before stays, and is released as they allow."""
        return await jobs.set_quota(tenant, given)

    return router
