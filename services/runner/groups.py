"""The rollouts of a Work: those that are kept are not run again, and the others have their turn.

What a program does wrong ends its rollout and nothing else; a rollout that is finished is on disk before anything else
is done with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import httpx

from ratchet.bus.in_hand import NEVER
from ratchet.bus.protocol import Bus, derived_id
from ratchet.bus.topology import APPROVALS
from ratchet.logs.best_answer import NOT_THERE, is_censored
from ratchet.programs.declared import Program
from ratchet.rollouts.agent import Model
from ratchet.rollouts.cancellations import TASK_CANCELLED, Cancellations
from ratchet.rollouts.kept_steps import KeptSteps, Question
from ratchet.rollouts.recording import RolloutOrder, Rollouts, why_ended
from ratchet.rollouts.rollout import Budget
from ratchet.service import failpoint
from ratchet.service.deadline_time import time_within
from ratchet.service.errors import RatchetError
from ratchet.service.telemetry import Log
from schemas.messages.approval_request import MOST_SHOWN, ApprovalRequest
from schemas.messages.base import Metadata
from schemas.messages.response import Sample
from schemas.messages.runner_rollouts import RolloutProgress
from schemas.messages.work import Work
from services.runner import metrics
from services.runner.early_stop import EarlyStop, Moments
from services.runner.kept_rollouts import KeptRollouts
from services.runner.next_turn import ApprovedStart, ended_by_person, ends_rollout
from services.runner.profiles import Profiles
from services.runner.progress import Progress
from services.runner.revisions import Revisions
from services.runner.sandboxed import SandboxStart
from services.runner.settings import RunnerSettings
from services.runner.slots import Needs, NoTurn, Slots
from workbench.sandbox.sandbox import Sandbox
from workbench.trees import Tree
from workbench.workspaces.workspaces import Workspaces

log = Log("runner")

ENDING_S = 60.0
"""Beyond its time a rollout may take so long to be ended and written down, and is no trouble."""
NO_TURN = "it had no turn before its task's deadline"
SOURCE = "runner"


class WaitsForPerson(RatchetError):
    """Rollouts of a Work wait for a person: it comes again with the answer."""


class Advance:
    """When this runner last got on. A rollout ends by itself, so it gets on until then."""

    def __init__(self) -> None:
        self._at = NEVER
        self.until: dict[object, float] = {}
        """The time by which each step that is under way has ended."""

    def note(self, ahead_s: float = 0.0) -> None:
        self._at = time.monotonic() + ahead_s

    @contextmanager
    def step(self, seconds: float) -> Iterator[None]:
        """A step that takes so long at most."""
        step = object()
        self.until[step] = time.monotonic() + seconds
        try:
            yield
        finally:
            del self.until[step]
            self.note()

    def at(self) -> float:
        return max(self._at, max(self.until.values(), default=NEVER))


@dataclass(frozen=True, slots=True)
class Group:
    """A Work, the model that answers its programs, and the tree of its workspace."""

    work: Work
    key: str
    model: Model
    tree: Tree | None
    stop: EarlyStop
    moments: Moments


@dataclass(eq=False)
class Groups:
    """`names`: the programs that answer a Work. `program`: one of them, with the limits and tools that the task leaves
    it. `left_s`: seconds to its deadline.
    """

    bus: Bus
    http: httpx.AsyncClient
    settings: RunnerSettings
    slots: Slots
    progress: Progress
    profiles: Profiles
    revisions: Revisions
    cancellations: Cancellations
    names: Callable[[Work], tuple[str, ...]]
    program: Callable[[Work, str], Program]
    left_s: Callable[[Work], float]
    advance: Advance = field(default_factory=Advance)
    sandbox: Sandbox | None = None
    workspaces: Workspaces | None = None
    """Both are there once the runner has started."""

    def __post_init__(self) -> None:
        self.kept = KeptRollouts(self.settings.runner_dir, int(self.settings.runner_keep_gb * 1e9))
        self.rollouts = Rollouts(self.http, self.progress.note)

    async def run(self, work: Work, key: str, model: Model, tree: Tree | None) -> list[Sample]:
        """Return all samples.

        Raises WaitsForPerson, and what a disk says, once all have ended.
        """
        kept = await asyncio.to_thread(self.kept.of, key)
        done = {number: sample for number, sample in kept.items() if number < work.sampling.n}
        moments = Moments(datetime.now(UTC), [sample.ended_at for sample in done.values() if sample.ended_at])
        if done:
            metrics.resumed.labels().inc(len(done))
            log.info("resumed", f"{len(done)} of {work.sampling.n} rollouts are there from before")
        missing = [number for number in range(work.sampling.n) if number not in done]
        stop = EarlyStop(work, self.http, self.settings.runner_scorer_url, lambda: self.left_s(work))
        group = Group(work, key, model, tree, stop, moments)
        looking = [asyncio.create_task(stop.look_at(sample)) for sample in done.values()] if missing else []
        try:
            if looking:
                left_s = self.left_s(work)
                within_s = left_s - time_within(left_s, None)
                self.advance.note(within_s)
                await asyncio.wait(looking, timeout=max(0.0, within_s))
                self.advance.note()
            steps = await asyncio.to_thread(lambda: [self._steps(group, number) for number in missing])
            with self.cancellations.ending(work.task_id, lambda: stop.call_off(TASK_CANCELLED)):
                ran = await asyncio.gather(
                    *(self._one(group, number, its) for number, its in zip(missing, steps, strict=True)),
                    return_exceptions=True,
                )
            await asyncio.gather(*looking)  # there is nothing left to call off
        finally:
            for one in looking:
                one.cancel()
        for outcome in ran:
            if isinstance(outcome, BaseException):
                raise outcome
        for number, sample in zip(missing, ran, strict=True):
            if isinstance(sample, Sample):
                done[number] = sample
            elif stop.called_off is not None:
                done[number] = Sample(text="", status="cancelled", says=stop.called_off)
        if len(done) < work.sampling.n:
            raise WaitsForPerson(f"{work.sampling.n - len(done)} of its rollouts wait for a person")
        return [done[number] for number in range(work.sampling.n)]

    def not_begun(self, work: Work, number: int, name: str, status: Literal["lost", "cancelled"], says: str) -> Sample:
        """Return the sample of a rollout that never began, which is told as one that ended."""
        self.progress.note(
            RolloutProgress(
                task_id=work.task_id,
                agent_id=work.agent_id,
                program=name,
                sample=number,
                state=status,
                started_at=datetime.now(UTC),
                seconds=0.0,
                calls=0,
                sampled_tokens=0,
                says=says,
            )
        )
        return Sample(text="", status=status, program=name, says=why_ended(status, says))

    async def _one(self, group: Group, number: int, steps: KeptSteps) -> Sample | Question:
        """Return the sample, or the question that it waits for, which is published then. Closes the steps."""
        work, key, stop = group.work, group.key, group.stop
        names = self.names(work)
        name = names[number % len(names)]
        limits = self.program(work, name).limits
        budget = Budget(limits.calls, limits.tokens)
        stop.begin(budget)
        kept = None
        try:
            sample = None
            newest, question = steps.last_answer, steps.open_question
            standing = await asyncio.to_thread(self.kept.standing, key, number) if newest or question else None
            if standing and newest and ends_rollout(*newest):
                sample = ended_by_person(standing, *newest)
            elif standing and question:
                await self._ask(group, number, name, question, standing)
                return question
            elif standing:
                await asyncio.to_thread(self.kept.remove_standing, key, number)
            if sample is None:
                sample = await self._in_turn(group, number, name, budget, steps)
            if steps.diverged is not None and not budget.called_off:
                says = steps.diverged
                if steps.has_answers and steps.times_anew:
                    return self.not_begun(work, number, name, "lost", f"{says}, for the second time")
                log.warning("diverged", f"sample {number} begins anew: {says}", sample=number, program=name)
                steps.begin_anew(says)
                again = Budget(limits.calls, limits.tokens)
                stop.begin(again)
                await stop.note_end(budget, None)
                budget = again
                sample = await self._in_turn(group, number, name, budget, steps)
            if steps.waits is not None and not budget.called_off:
                await asyncio.to_thread(self.kept.put_standing, key, number, sample)
                failpoint.reach("rollout-waits")
                await self._ask(group, number, name, steps.waits, sample)
                return steps.waits
            failpoint.reach("rollout-ended")
            if sample.status not in NOT_THERE:
                if is_censored(work.select):
                    sample = sample.model_copy(update={"ended_at": group.moments.now()})
                await asyncio.to_thread(self.kept.put, key, {number: sample})
                failpoint.reach("rollout-kept")
                kept = sample
                steps.remove()
        finally:
            steps.close()
            await stop.note_end(budget, kept)
        return sample

    def _steps(self, group: Group, number: int) -> KeptSteps:
        """Open the steps of a rollout, and note what people answered it. Raises JournalError."""
        steps = self.kept.steps(group.key, number)
        for given in group.work.approvals or ():
            if given.sample == number:
                steps.answer(given.approval_id, given.decision, given.text)
        return steps

    async def _ask(self, group: Group, number: int, name: str, question: Question, standing: Sample) -> None:
        """Return when the orchestrator's queue has the question; it knows one that comes again."""
        request = ApprovalRequest(
            approval_id=question.approval_id,
            task_id=group.work.task_id,
            agent_id=group.work.agent_id,
            metadata=Metadata(timestamp=datetime.now(UTC), source=SOURCE),
            program=name,
            sample=number,
            question=question.question,
            options=question.options,
            ends=question.ends,
            answer=standing.text[-MOST_SHOWN:],
            patch=standing.artifact.patch[:MOST_SHOWN] if standing.artifact else "",
        )
        message_id = derived_id(question.approval_id, "asked")
        await self.bus.publish(APPROVALS, request.encode(), type=ApprovalRequest.TYPE, message_id=message_id)

    async def _in_turn(self, group: Group, number: int, name: str, budget: Budget, steps: KeptSteps) -> Sample:
        work, waited = group.work, time.monotonic()
        left_s, limits = time_within(self.left_s(work), None), self.program(work, name).limits
        try:
            async with self.slots.of(work.priority, left_s, budget.spent, Needs(limits.memory_mb, limits.cpus)):
                metrics.wait_seconds.observe(time.monotonic() - waited)
                says = await self.revisions.why_another(work)  # it may have changed while others had their turn
                if says is not None:
                    log.warning("another-revision", says, program=name, experiment_id=work.arm.experiment_id)
                    return self.not_begun(work, number, name, "lost", says)
                return await self._run(group, number, name, budget, steps)
        except NoTurn:
            if budget.called_off:
                return self.not_begun(work, number, name, "cancelled", str(budget.says))
            log.warning("lost", f"sample {number} had no turn before its deadline", sample=number, program=name)
            return self.not_begun(work, number, name, "lost", NO_TURN)

    async def _run(self, group: Group, number: int, name: str, budget: Budget, steps: KeptSteps) -> Sample:
        assert self.sandbox is not None and self.workspaces is not None
        work, program = group.work, self.program(group.work, name)
        seconds = time_within(self.left_s(work), program.limits.seconds)
        began = time.monotonic()
        with self.advance.step(seconds + ENDING_S):
            once = SandboxStart(self.sandbox, self.workspaces, program, work, number, seconds, group.tree)
            start = ApprovedStart(once, work.approval or program.approval, steps)
            foreign = self.profiles.roles(work, budget, steps)
            order = RolloutOrder(work, number, name, group.model, start, seconds, budget, steps, foreign)
            sample = await self.rollouts.run(order)
        metrics.observe(name, sample, time.monotonic() - began)
        return sample
