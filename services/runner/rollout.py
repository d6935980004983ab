"""One rollout: a program in a sandbox of its own, with a recorder of its own for a way out, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import httpx

from ratchet.conversation.template import ChatTemplate
from ratchet.programs.declared import TASK_FILE, TASK_VARIABLE, Program
from ratchet.programs.task_input import as_text
from ratchet.rollouts.answers import rollout_of
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.command import model_environment
from ratchet.rollouts.own_socket import serving
from ratchet.rollouts.recording import Ran, recorded
from ratchet.rollouts.rollout import Budget, RecordedRollout
from ratchet.service import failpoint
from ratchet.service.errors import one_line
from ratchet.service.telemetry import Log
from schemas.api.generate import ServedModel
from schemas.api.rollouts import RunningRollout
from schemas.messages.response import Sample, SampleStatus
from schemas.messages.runner_rollouts import RolloutProgress, RolloutState
from schemas.messages.work import Work
from schemas.messages.workspace import Artifact
from services.runner.early_stop import ANOTHER_PASSED
from workbench.sandbox.job import WORKSPACE, End, Job, Listen, Result, SandboxError
from workbench.sandbox.limits import MIB
from workbench.sandbox.sandbox import Sandbox
from workbench.trees import Tree
from workbench.workspaces.workspaces import Workspaces

log = Log("runner")

PORT = 47_331
"""Of the recorder, as it is seen inside; each sandbox has a network of its own."""
BASE_URL = f"http://127.0.0.1:{PORT}/v1"
REQUESTS_A_CALL = 4
"""A rollout may send so many requests for each call that it may make: retries, refusals, lists of models."""
LEAST_REQUESTS = 256
BYTES_A_TOKEN, LEAST_BODY = 32, 256 * 1024
"""A request that has more can't fit the context, whatever its tokens."""
SHOWN_CHARS = 400
MOST_ADDED = 32 * MIB
"""Of what a rollout leaves in its workspace beyond what was there; the rest is left out, with a reason."""


@dataclass(frozen=True, slots=True)
class Model:
    """The agent's, as programs find it."""

    served: ServedModel
    template: ChatTemplate
    urls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RolloutOrder:
    """`seconds`: until it has to end, so that what it has can still be scored. `tree`: what its workspace begins with,
    None for an empty folder that nobody asks back. `budget`: what it may take; who ends it calls the rollout off."""

    work: Work
    number: int
    name: str
    program: Program
    model: Model
    seconds: float
    budget: Budget
    tree: Tree | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Underway:
    """A rollout that runs."""

    order: RolloutOrder
    rollout: RecordedRollout
    began: float = field(default_factory=time.monotonic)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def progress(self, state: RolloutState = "running", says: str | None = None) -> RolloutProgress:
        """As far as it has come."""
        seconds = round(time.monotonic() - self.began, 3)
        return RolloutProgress(**self._so_far(), state=state, seconds=seconds, says=says)

    def shown(self) -> RunningRollout:
        left_s = max(0.0, self.began + self.order.seconds - time.monotonic())
        return RunningRollout(**self._so_far(), ends_within_s=left_s)

    def _so_far(self) -> dict[str, Any]:
        work, calls = self.order.work, self.rollout.conversation.calls
        return {
            "task_id": work.task_id,
            "agent_id": work.agent_id,
            "program": self.order.name,
            "sample": self.order.number,
            "started_at": self.started_at,
            "calls": len(calls),
            "sampled_tokens": sum(len(call.ids) for call in calls),
        }


class Rollouts:
    """Runs them. A fault of the program ends one of them; a fault of ours makes it `lost`."""

    def __init__(
        self,
        sandbox: Sandbox,
        workspaces: Workspaces,
        http: httpx.AsyncClient,
        told: Callable[[RolloutProgress], None] = lambda _: None,
    ) -> None:
        """`told`: of each that ended, how."""
        self._sandbox = sandbox
        self._workspaces = workspaces
        self._http = http
        self._told = told
        self.underway: dict[Underway, None] = {}
        """Those that run now, the oldest first."""

    async def run(self, order: RolloutOrder) -> Sample:
        model, budget = order.model, order.budget
        rollout = rollout_of(order.work, order.number, self._http, model.urls, model.served, model.template, budget)
        underway = Underway(order, rollout)
        self.underway[underway] = None
        try:
            return await self._recorded(underway)
        finally:
            del self.underway[underway]

    async def _recorded(self, underway: Underway) -> Sample:
        order, rollout = underway.order, underway.rollout
        limits, budget = order.program.limits, order.budget
        recorder = Recorder(max(LEAST_BODY, BYTES_A_TOKEN * (order.model.served.context or 0)))
        began = time.monotonic()
        by_itself = ""

        async def in_sandbox(key: str) -> Ran:
            nonlocal by_itself
            try:
                most_requests = max(LEAST_REQUESTS, REQUESTS_A_CALL * limits.calls)
                async with serving(recorder, budget, most_requests) as listen:
                    job = job_of(order, key, {PORT: listen})
                    failpoint.reach("rollout-begun")
                    result = await self._sandbox.run(job, called_off=budget.spent)
                ran = ended(order.program, result, budget)
                by_itself = ran.says
                if ran.status == "cancelled":
                    return ran
                return replace(ran, artifact=await self._artifact(order, result), seconds=result.wall_s)
            except (SandboxError, OSError) as error:
                return Ran("", "lost", says=f"a failure of ours: {error}")

        sample = await recorded(recorder, rollout, order.name, in_sandbox)
        if sample.status == "cancelled":  # a part of an answer is none: what it took is all that is told
            sample = Sample(text="", status="cancelled", program=order.name, usage=sample.usage, says=ANOTHER_PASSED)
        says = sample.says or by_itself
        tell = log.warning if sample.status == "lost" else log.info
        usage = sample.usage
        tell(
            "rollout-ended",
            f"sample {order.number} by {order.name}: {sample.status}: {says}",
            sample=order.number,
            program=order.name,
            status=sample.status,
            seconds=round(time.monotonic() - began, 3),
            calls=usage.calls if usage else 0,
            tokens=usage.sampled_tokens if usage else 0,
        )
        self._told(underway.progress(sample.status or "finished", says or None))
        return sample

    async def _artifact(self, order: RolloutOrder, result: Result) -> Artifact | None:
        if order.tree is None or order.work.workspace is None:
            return None
        return await self._workspaces.artifact(order.tree, result, order.work.workspace.collect)


def job_of(order: RolloutOrder, key: str, listeners: Mapping[int, Listen]) -> Job:
    """What the program sees: never the reference or the criteria, and of ours no address but the recorder's."""
    work, program = order.work, order.program
    text = as_text(work.input)
    environment = {
        **program.environment,
        **model_environment(BASE_URL, key),
        "RATCHET_TASK_ID": work.task_id,
        "RATCHET_SAMPLE": str(order.number),
        **({TASK_VARIABLE: text} if program.task == "environment" else {}),
    }
    limits = program.limits.in_sandbox(order.seconds)
    if order.tree is not None:
        limits = replace(limits, collected_bytes=min(limits.workspace_bytes, order.tree.size + MOST_ADDED))
    data = {path: content.encode() for path, content in program.data.items()}
    if program.task == "file":
        data[TASK_FILE] = text.encode(errors="replace")
    return Job(
        program.command_for(work.input),
        stdin=text.encode(errors="replace") if program.task == "stdin" else b"",
        environment=environment,
        mounts=program.binds,
        data=data,
        listeners=listeners,
        collect=(program.answer_file,) if program.answer_file else (),
        tree=order.tree.files if order.tree else {},
        collect_tree=order.tree is not None,
        root=program.image.folder if program.image else None,
        directory=program.directory or WORKSPACE,
        limits=limits,
    )


def ended(program: Program, result: Result, budget: Budget) -> Ran:
    """How it is told, with a sentence why. It is scored by what it left, whatever ended it."""
    answer, says = result.stdout, result.says
    if program.answer_file:
        answer = result.files.get(program.answer_file, b"")
        if program.answer_file in result.left_out:
            says += f"; {program.answer_file}: {result.left_out[program.answer_file]}"
    status: SampleStatus
    match result.end:
        case End.EXITED:
            status = "failed" if result.exit_code else "finished"
        case End.SIGNALLED:
            status = "failed"
        case End.CANCELLED:
            called_off = budget.says == ANOTHER_PASSED
            status, says = "cancelled" if called_off else "limit", budget.says or says
        case _:
            status = "limit"
    if status in ("failed", "limit") and (said := _last_words(result, printed=program.answer_file is not None)):
        says += f"; it said: {said}"
    return Ran(answer.decode(errors="replace").strip(), status, says=says)


def _last_words(result: Result, *, printed: bool) -> str:
    """The end of what it wrote to stderr; of nothing there, and where that is not its answer, of what it printed."""
    for written in (result.stderr, result.stdout if printed else b""):
        if said := written[-4 * SHOWN_CHARS :].decode(errors="replace").strip():
            return one_line(said if len(said) <= SHOWN_CHARS else f"…{said[-SHOWN_CHARS:]}")
    return ""
