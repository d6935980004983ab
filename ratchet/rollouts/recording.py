"""The owner of rollouts: each has its program started, its calls recorded, and ends as a Sample.

How a program is started, in a sandbox or as it is, is a `Start`; what it may do to the record is decided here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import httpx

from ratchet.conversation.segments import sample_of
from ratchet.rollouts.agent import AgentTokens, Model
from ratchet.rollouts.kept_steps import KeptSteps
from ratchet.rollouts.rollout import Budget, RecordedRollout, TextRole
from ratchet.service.errors import one_line
from ratchet.service.telemetry import Log
from schemas.api.programs import RunningRollout
from schemas.messages.response import Sample, SampleStatus
from schemas.messages.runner_rollouts import RolloutProgress, RolloutState
from schemas.messages.work import Arm, RoleVersion, Work
from schemas.messages.workspace import Artifact

log = Log("runner")

GIVEN_UP_S = 5.0
SAID_CHARS = 600
"""Characters that a Sample tells of its end: they stand in each line of the log, and for each rollout in the Result."""


@dataclass(frozen=True, slots=True)
class Ran:
    """Answer of a program, and how it ended as far as its start can tell, with a sentence. `seconds`: that it ran
    for."""

    text: str
    status: SampleStatus
    artifact: Artifact | None = None
    seconds: float | None = None
    says: str = ""


class Start(Protocol):
    """Starts a program and waits for its end."""

    async def __call__(self, rollout: RecordedRollout) -> Ran:
        """Return what came of the program. It calls its model through a `Recorder` that has this rollout; the key is
        worth nothing once this returns, or is cancelled."""


@dataclass(frozen=True, slots=True)
class RolloutOrder:
    """`name`: of the program. `seconds`: until it has to end, so that what it has can still be scored. `budget`: what
    it may take; who calls that off calls the rollout off."""

    work: Work
    number: int
    name: str
    model: Model
    start: Start
    seconds: float
    budget: Budget = field(default_factory=Budget)
    steps: KeptSteps | None = None
    """Its steps, which are kept, and answered from if they are there."""
    foreign: Mapping[str, TextRole] = field(default_factory=dict)
    """The roles that models of other providers play."""


@dataclass(frozen=True, slots=True, eq=False)
class Underway:
    """A rollout that runs."""

    order: RolloutOrder
    rollout: RecordedRollout
    began: float = field(default_factory=time.monotonic)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def progress(self, state: RolloutState = "running", says: str | None = None) -> RolloutProgress:
        """Return how far it has come."""
        seconds = round(time.monotonic() - self.began, 3)
        return RolloutProgress(**self._so_far(), state=state, seconds=seconds, says=says)

    def as_running(self) -> RunningRollout:
        left_s = max(0.0, self.began + self.order.seconds - time.monotonic())
        return RunningRollout(**self._so_far(), ends_within_s=left_s)

    def _so_far(self) -> dict[str, Any]:
        work, calls = self.order.work, self.rollout.calls
        foreign = [one.part() for one in self.rollout.foreign.values()]
        return {
            "task_id": work.task_id,
            "agent_id": work.agent_id,
            "program": self.order.name,
            "sample": self.order.number,
            "started_at": self.started_at,
            "calls": len(calls) + sum(part.calls for part in foreign),
            "sampled_tokens": sum(len(call.ids) for call in calls) + sum(part.sampled_tokens for part in foreign),
        }


class Rollouts:
    """Runs rollouts. `http`: for calls of the agents whose models answer."""

    def __init__(self, http: httpx.AsyncClient, note_end: Callable[[RolloutProgress], None] = lambda _: None) -> None:
        """`note_end` is told of each that ended, how."""
        self._http = http
        self._note_end = note_end
        self.underway: dict[Underway, None] = {}
        """Those that run now, the oldest first."""

    async def run(self, order: RolloutOrder) -> Sample:
        """Return what came of it. A fault of the program ends one rollout; a fault of ours makes it `lost`."""
        rollout = rollout_of(order.work, order.number, order.model, self._http, order.budget, order.steps)
        rollout.foreign = order.foreign
        underway = Underway(order, rollout)
        self.underway[underway] = None
        try:
            sample, says = await record(rollout, order.name, order.start)
            if order.steps is None or order.steps.waits is None:
                await rollout.call_off_left()
        finally:
            del self.underway[underway]
        state: RolloutState = sample.status or "finished"
        if order.steps is not None and order.steps.waits is not None:
            state, says = "waiting", f"it waits for a person: {one_line(order.steps.waits.question, SAID_CHARS)}"
        tell = log.warning if sample.status == "lost" else log.info
        usage = sample.usage
        tell(
            "rollout-ended",
            f"sample {order.number} by {order.name}: {state}: {says}",
            sample=order.number,
            program=order.name,
            status=state,
            seconds=round(time.monotonic() - underway.began, 3),
            calls=usage.calls if usage else 0,
            tokens=usage.sampled_tokens if usage else 0,
        )
        self._note_end(underway.progress(state, says or None))
        return sample


def rollout_of(
    work: Work,
    number: int,
    model: Model,
    http: httpx.AsyncClient,
    budget: Budget | None = None,
    steps: KeptSteps | None = None,
) -> RecordedRollout:
    """Return the record of a rollout, whose calls just the adapter and the sampling of its Work answer; of a program
    with roles, the adapters."""
    roles = work.arm.roles or {}
    own = next(iter(roles), None)

    def begin(
        of: Model, arm: Arm | RoleVersion, agent_id: str, role: str | None, first: RecordedRollout | None
    ) -> RecordedRollout:
        engine = AgentTokens(
            http,
            of.urls,
            arm=arm,
            sampling=work.sampling,
            context=of.served.context or 0,
            ends=of.template.ends,
            first=work.arm.sequence + number,
        )
        return RecordedRollout(
            of.template,
            engine,
            model=agent_id,  # without the version: a program that knew its arm could favour one in an experiment
            sampling=work.sampling,
            budget=budget,
            role=role,
            version=arm.adapter_version,
            first=first,
            steps=steps,
        )

    rollout = begin(model, work.arm, work.agent_id, own, None)
    for role, played in roles.items():
        if role != own:
            begin(model.partners[role], played, played.agent_id, role, rollout)
    return rollout


async def record(rollout: RecordedRollout, program: str, start: Start) -> tuple[Sample, str]:
    """Return a program's run as a Sample, and a sentence on its end.

    A program that failed or met a limit while the engine was away for it is `lost`. One that was called off has no
    answer: what it took is all that is told.
    """
    began = time.monotonic()
    ran = await start(rollout)
    took = time.monotonic() - began if ran.seconds is None else ran.seconds
    with suppress(TimeoutError):  # what it was asking when it ended is given up as soon as its connection is seen to be
        async with asyncio.timeout(GIVEN_UP_S):
            await rollout.wait_idle()
    lost = ran.status in ("failed", "limit") and rollout.engine_trouble is not None
    status: SampleStatus = "lost" if lost else ran.status
    says = ran.says
    if status == "lost" and rollout.engine_trouble:
        says = f"{says}; the model was away: {rollout.engine_trouble}".removeprefix("; ")
    overruled = rollout.overruled
    sample = sample_of(
        rollout.conversation, ran.text, status=status, program=program, overruled=overruled, parts=rollout.parts
    )
    usage = sample.usage and sample.usage.model_copy(update={"seconds": round(took, 3)})
    says = one_line(says, SAID_CHARS)
    if status == "cancelled":
        return Sample(text="", status=status, program=program, usage=usage, says=says or None), says
    foreign = tuple(part for one in rollout.foreign.values() if (part := one.part()).calls)
    told: dict[str, Any] = {"usage": usage, "artifact": ran.artifact, "says": why_ended(status, says)}
    told |= {"edited": rollout.edited, "foreign": foreign or None, "tool_audit": rollout.tool_audit.summary()}
    return sample.model_copy(update=told), says


def why_ended(status: SampleStatus, says: str) -> str | None:
    """Return what a Sample tells of its end: nothing of one that ended by itself."""
    return None if status == "finished" else one_line(says, SAID_CHARS) or None
