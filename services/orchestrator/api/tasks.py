"""/v1/tasks: submit and wait, the list, one task's whole history. /v1/deliberate: a task with several answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Body, Query, Request, Response
from fastapi import Path as InPath

from ratchet.http.access.guard import CallerOf
from ratchet.http.access.roles import Caller
from ratchet.http.operation import OPERATOR, OWN_TASKS, VIEWER, Effect, operation
from ratchet.http.paging import Cursor, Limit, cursor_of, sequence_of
from ratchet.http.problem import Problem, problems
from ratchet.http.server.idempotency import IdempotencyKey, id_from_key, key_reused
from ratchet.http.work import Threads, while_connected
from schemas.api.page import Page
from schemas.api.tasks import Deliberation, TaskAccepted, TaskHistory, TaskSubmission, TaskSummary
from schemas.messages.feedback import LoggedFeedback
from schemas.messages.result import Result
from services.orchestrator.ledger.index import Entry
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.tasks.intake import with_keys
from services.orchestrator.tasks.task_history import read_history
from services.orchestrator.tasks.task_list import StateFilter, task_page
from services.orchestrator.tasks.task_service import SaysSomethingElse, TaskService

LONGEST_WAIT_S = 600
ROUTE = "POST /v1/tasks"
DELIBERATE = "POST /v1/deliberate"
DELIBERATE_WAIT_S = 30.0

WaitS = Annotated[float, Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for the Result.")]
OF_PROGRAMS = (
    "constraints",
    "evaluation",
    "kept_apart",
    "needs_token_texts",
    "needs_usage",
    "profile",
    "programs",
    "registered_agent",
    "stop",
    "tools",
    "top_p",
    "work_to",
    "workspace",
)
"""Fields of a task that are for programs: an assistant has no use for them."""
TaskId = Annotated[str, InPath(description="A task's id; it may hold slashes.")]
ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {
        "model": TaskAccepted,
        "description": "Admitted: it is in the log and on its way.",
        "headers": {"Location": {"description": "Where the task is to be seen.", "schema": {"type": "string"}}},
    }
}


def tasks_router(
    service: TaskService, ledger: Ledger, feedback: Callable[[str], list[LoggedFeedback]], threads: Threads
) -> APIRouter:
    router = APIRouter(tags=["tasks"])

    def find(task_id: str, caller: Caller) -> Entry:
        known = ledger.find(caller.key_of(task_id))
        if known is None or not caller.may_see(known.task_id, known.owner):
            if ledger.has_forgotten(caller.key_of(task_id)):
                raise Problem(410, "Gone", "the task was answered, and its lines are no longer kept", "forgotten")
            raise Problem(404, "No such task", "no task of this id was admitted by this fleet", "unknown-task")
        return known

    async def submit_and_wait(
        submission: TaskSubmission, request: Request, caller: Caller, wait_s: float, key: str | None, route: str
    ) -> Any:
        is_keyed = submission.task_id is None and key is not None
        task_id = submission.task_id or (id_from_key(caller, route, key) if key else f"task-{uuid.uuid4().hex}")
        task = with_keys(submission.model_copy(update={"task_id": task_id}), caller.tenant)
        try:
            await service.submit(task, caller, same=is_keyed)
        except SaysSomethingElse:
            raise key_reused("task") from None
        result = await while_connected(request, service.answer(task.task_id, wait_s))
        if result is not None:
            return caller.show(result)
        location = f"/v1/tasks/{quote(task_id)}"
        accepted = TaskAccepted(task_id=task_id, location=location)
        return Response(accepted.model_dump_json(), 202, {"Location": location}, "application/json")

    @router.post("/v1/tasks", response_model=Result, responses=ACCEPTED | problems(409, 410, 422, 503))
    @operation(
        OWN_TASKS,
        OPERATOR,
        effect=Effect.WORKS,
        title="Submit a task",
        tool="submit_task",
        given={"wait_s": 30.0},
        hides=OF_PROGRAMS,
    )
    async def submit(
        submission: Annotated[TaskSubmission, Body()],
        request: Request,
        caller: CallerOf,
        wait_s: WaitS = 0,
        idempotency_key: IdempotencyKey = None,
    ) -> Any:
        """Give the fleet a task: an agent samples several answers, a scorer scores them, you get the best one.

        If the Result comes within `wait_s` seconds you get it, with its score and the adapter version that answered
        (status ok, failed, expired or cancelled). If not, you get state "open" and where to look for it: the task goes
        on. The same `task_id` is the same task: sent again it is not run again. Without one the header Idempotency-Key
        serves as one, and must then come with the same task. Every task is logged, and future adapters are trained on
        it.
        """
        return await submit_and_wait(submission, request, caller, wait_s, idempotency_key, ROUTE)

    @router.post("/v1/deliberate", response_model=Result, responses=ACCEPTED | problems(409, 410, 422, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.WORKS, title="Deliberate", tool="deliberate", hides=OF_PROGRAMS)
    async def deliberate(
        submission: Annotated[Deliberation, Body()],
        request: Request,
        caller: CallerOf,
        wait_s: WaitS = DELIBERATE_WAIT_S,
        idempotency_key: IdempotencyKey = None,
    ) -> Any:
        """Have several answers to one question made side by side, and get one of them, chosen as `select` says.

        A task like any other, with `samples` and `select` given. At the deadline you get the best of what is scored by
        then (partial: true). If nothing comes within `wait_s`, you get state "open" and the task goes on.
        """
        return await submit_and_wait(submission, request, caller, wait_s, idempotency_key, DELIBERATE)

    @router.get("/v1/tasks", responses=problems(422, 503))
    @operation(VIEWER, OWN_TASKS, OPERATOR, title="List tasks", tool="list_tasks")
    async def tasks(
        caller: CallerOf,
        state: Annotated[StateFilter | None, Query(description="Only those; closed: all but open.")] = None,
        agent_id: Annotated[str | None, Query(description="Only this agent's; a page may then be short.")] = None,
        own: Annotated[
            bool, Query(description="With the fleet's own tasks: golden ones, anchors and evaluations.")
        ] = True,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Page[TaskSummary]:
        """List tasks, the newest first, with the beginning of the input and of the answer; a submitter's own."""
        before = sequence_of(cursor)
        ledger.commit()
        page = await threads.run(
            task_page,
            ledger.index.path,
            ledger.folder,
            limit=limit,
            before=before,
            state=state,
            agent_id=agent_id,
            own=own,
            owner=caller.owner if caller.own_only else None,
            tenant=caller.tenant if caller.is_bound else None,
        )
        following = None if page.next is None else cursor_of([page.next])
        return caller.show(Page(items=page.items, next=following))

    @router.get("/v1/tasks/{task_id:path}", responses=problems(404, 410, 503))
    @operation(VIEWER, OWN_TASKS, OPERATOR, title="Show a task", tool="get_task", resource="tasks")
    async def task(task_id: TaskId, caller: CallerOf) -> TaskHistory:
        """Show one task's whole history: its way through the fleet hop by hop, each sampled answer with its score and
        the scorer's reason, the adapter version it got and why (experiment, share), and the Result. Start here to
        explain an answer.
        """
        known = find(task_id, caller)
        history = await threads.run(read_history, ledger.folder, known)
        blind = {"arm": None} if caller.own_only and history.state == "open" else {}
        return caller.show(history.model_copy(update={"feedback": feedback(known.task_id)} | blind))

    @router.delete("/v1/tasks/{task_id:path}", responses=problems(404, 409, 410, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.REPLACES, title="Cancel a task", tool="cancel_task")
    async def cancel(task_id: TaskId, caller: CallerOf) -> Result:
        """Cancel an open task: its rollouts end, its Result is `cancelled`, and no training learns from it. What was
        used until then is logged. A task that has ended stays as it is (409).
        """
        known = find(task_id, caller)
        return caller.show(await service.cancel(known.task_id, caller))

    return router
