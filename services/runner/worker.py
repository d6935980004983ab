"""The runner: a Work in, a Response with a rollout for each of its samples out.

A Work ends as a Response, an expired task, or a raised Retry or Reject. What a program does wrong ends its rollout and
nothing else; a rollout that is finished is on disk before anything else is done with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from fastapi import APIRouter

from ratchet.bus.protocol import Bus, Delivery, decode_delivery
from ratchet.bus.topology import HIGH_PRIORITY, work_queue
from ratchet.concurrency.own_share import OwnShare
from ratchet.logs.cascaded import is_asked_of_big
from ratchet.logs.names import is_own
from ratchet.openai.transport import ServerUnavailable
from ratchet.programs.declared import Program, Programs
from ratchet.rollouts.agent import Model, agent_client
from ratchet.rollouts.answers import Answers, key_of, response_of
from ratchet.rollouts.cancellations import Cancellations
from ratchet.runtime.runner import Subscription
from ratchet.service.deadline_time import DeadlineTime
from ratchet.service.errors import EngineError, RatchetError, Reject, Retry, SettingsError, one_line
from ratchet.service.process_name import process_name
from ratchet.service.telemetry import Log, task_in_hand
from schemas.api.programs import RunningRollouts
from schemas.messages.response import GenerationLatencies, Response
from schemas.messages.runner_rollouts import RolloutProgress
from schemas.messages.work import Work
from services.runner import metrics
from services.runner.agents import Agents
from services.runner.groups import SOURCE, Groups, WaitsForPerson
from services.runner.profiles import Profiles
from services.runner.progress import Progress, runner_router
from services.runner.registered import Registered
from services.runner.revisions import Revisions
from services.runner.sandboxed import require_findable
from services.runner.settings import RunnerSettings
from services.runner.slots import Slots, cpus_here, memory_here_mb
from workbench.sandbox.job import SandboxError
from workbench.sandbox.limits import MIB
from workbench.sandbox.sandbox import Sandbox
from workbench.trees import Tree
from workbench.workspaces.errors import WorkspaceError, WorkspaceUnavailable
from workbench.workspaces.workspaces import Workspaces

log = Log("runner")

AGENT_POLL_S = 0.5
ANSWERS_KEPT_BYTES = 64 * 1024 * 1024
"""Bytes of Responses that are kept for a Work that comes again."""


class Unanswerable(RatchetError):
    """A Work that no program can answer, however often it comes."""


class RunnerWorker:
    name = "runner"

    def __init__(self, settings: RunnerSettings, bus: Bus, programs: Programs) -> None:
        self._settings = settings
        self._bus = bus
        self._programs = programs
        self._time = DeadlineTime()
        self._http = agent_client(None, settings.runner_api_token_file)
        self._agents = Agents(self._http, settings.runner_agents, settings.runner_tokenizer)
        self._memory_mb = settings.runner_memory_mb or memory_here_mb()
        self._cpus = settings.runner_cpus or cpus_here()
        self._own_share = OwnShare(settings.own_share, settings.sandbox_runs_at_once)
        self._answers = Answers(bus, ANSWERS_KEPT_BYTES)
        self._cancellations = Cancellations(self._forget_waiting)
        self._waiting: dict[str, str] = {}
        """Keys of the Work whose rollouts wait for a person, by task."""
        self._forgetting: set[asyncio.Task[None]] = set()
        self._revisions = Revisions(programs)
        self._progress = Progress(bus, process_name(), self._under_way, programs=self._revisions.declared_programs)
        self._profiles = Profiles(settings)
        self._groups = Groups(
            bus,
            self._http,
            settings,
            Slots(settings.sandbox_runs_at_once, self._memory_mb, self._cpus),
            self._progress,
            self._profiles,
            self._revisions,
            self._cancellations,
            self._names,
            self._program,
            self._time.left_of,
        )
        metrics.waiting.set_function(lambda: self._groups.slots.waiting)
        metrics.at_work.set_function(lambda: len(self._groups.advance.until))
        self._registered: Registered | None = None
        self._trouble: str | None = None
        self._away: dict[str, str] = {}
        """Agents that did not serve their model when it was asked for last, and why."""

    def routers(self) -> Sequence[APIRouter]:
        return [runner_router(self.running)]

    def running(self) -> RunningRollouts:
        return RunningRollouts(
            items=[one.as_running() for one in self._groups.rollouts.underway],
            ended=self._progress.ended,
            waiting=self._groups.slots.waiting,
            at_once=self._settings.sandbox_runs_at_once,
        )

    def _under_way(self) -> tuple[list[RolloutProgress], int, int]:
        running = [one.progress() for one in self._groups.rollouts.underway]
        return running, self._groups.slots.waiting, self._settings.sandbox_runs_at_once

    async def start(self) -> None:
        """Raises SandboxRefused where the sandbox does not hold here, SettingsError for a program that is not there."""
        self._time.start()
        self._trouble = "trying the sandbox"
        await asyncio.to_thread(self._groups.kept.sweep)
        self._groups.sandbox = sandbox = await Sandbox.opened_or_shown(self._settings)
        self._groups.workspaces = Workspaces(self._settings, sandbox)
        for name in self._programs.names:
            await require_findable(sandbox, name, self._programs[name])
        await asyncio.to_thread(self._revisions.declared_programs)
        await self._cancellations.listen(self._bus, self._programs.by_agent)
        for agent in self._programs.by_agent:
            await self._first_seen(agent)
        self._progress.start()
        self._trouble = None
        if (url := self._settings.manager_url) is not None:
            self._registered = Registered(
                self._http,
                url,
                process_name(),
                self._settings.program_environments,
                self._settings.runner_agents,
                lambda name, program: self._try_registered(sandbox, name, program),
            )
            await self._cancellations.listen(self._bus, self._models_of_registered - set(self._programs.by_agent))
            self._registered.start()
        for agent, names in self._programs.by_agent.items():
            log.info("runner-started", f"tasks of {agent} go to {', '.join(names)}: {sandbox.facts.says}")

    async def _try_registered(self, sandbox: Sandbox, name: str, program: Program) -> None:
        """Raises SettingsError for one that asks for more memory or cores than there are here, too."""
        if program.limits.cpus > self._cpus:
            raise SettingsError(
                f"program {name} asks for {program.limits.cpus:g} cores (limits.cpus), and this runner has "
                f"{self._cpus:g} for all (RATCHET_RUNNER_CPUS)"
            )
        if program.limits.memory_mb > self._memory_mb:
            raise SettingsError(
                f"program {name} asks for {program.limits.memory_mb:,} MB (limits.memory_mb), and this runner has "
                f"{self._memory_mb:,} MB for all (RATCHET_RUNNER_MEMORY_MB)"
            )
        await require_findable(sandbox, name, program)

    async def _first_seen(self, agent: str) -> None:
        """Waits until it answers. Raises EngineError where programs can't talk with its model."""
        while True:
            try:
                model = await self._agents.model(agent)
            except ServerUnavailable as error:
                self._trouble = f"agent {agent} does not answer: {error}"
                await asyncio.sleep(AGENT_POLL_S)
            else:
                log.info("agent-found", f"programs of {agent} talk with {model.served.engine}", agent_id=agent)
                return

    def subscriptions(self) -> Sequence[Subscription]:
        queues = [
            queue
            for agent in self._programs.by_agent
            for queue in (work_queue(agent), work_queue(agent, priority=HIGH_PRIORITY))
        ]
        queues += [work_queue(agent, registered=True) for agent in sorted(self._models_of_registered)]
        prefetch = self._settings.sandbox_runs_at_once
        return [Subscription(queue, self.handle, prefetch, advanced_at=self._groups.advance.at) for queue in queues]

    @property
    def _models_of_registered(self) -> set[str]:
        """Agents whose model registered agents may use: those whose address is known."""
        return set(self._settings.runner_agents) if self._settings.manager_url else set()

    def trouble(self) -> str | None:
        return self._trouble or next(iter(self._away.values()), None)

    async def stop(self) -> None:
        self._time.stop()
        await self._progress.stop()
        if self._registered is not None:
            await self._registered.stop()
        await self._http.aclose()
        await self._profiles.close()
        if self._groups.workspaces is not None:
            await self._groups.workspaces.close()

    async def handle(self, delivery: Delivery) -> None:
        """Return when the Response is confirmed, the task has expired, or rollouts wait for a person who was asked."""
        work = decode_delivery(Work, delivery)
        if work.registered_agent is None and work.agent_id not in self._programs.by_agent:
            raise Reject(f"this Work is for agent {work.agent_id!r}, which has no programs here")
        task_in_hand.set(work.task_id)
        key = key_of(work)
        own = is_own(work.arm.experiment_id) and not is_asked_of_big(work.arm.experiment_id)
        turn = self._own_share.turn(work.sampling.n, own=own, within_s=self._time.left_of(work))
        async with turn, AsyncExitStack() as held:
            try:
                make = partial(self._respond, work, key, delivery.attempts, held)
                if await self._answers.answer(work, delivery.body, make):
                    await asyncio.to_thread(self._groups.kept.note_answered, key)
            except WaitsForPerson:
                self._waiting[work.task_id] = key
                if work.task_id in self._cancellations:
                    self._forget_waiting(work.task_id)
                return
            self._waiting.pop(work.task_id, None)
            await asyncio.to_thread(self._groups.kept.remove, key)

    def _forget_waiting(self, task_id: str) -> None:
        """The task was cancelled, or has ended: what is kept of rollouts that wait is removed."""
        if (key := self._waiting.pop(task_id, None)) is not None:
            task = asyncio.create_task(asyncio.to_thread(self._groups.kept.remove, key))
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    async def _hold(self, work: Work, key: str, held: AsyncExitStack) -> None:
        """Wait until no other runner is at this Work, as one may be whose connection the broker has lost."""
        lock = self._groups.kept.lock(key)
        held.callback(lock.release)
        while self._time.left_of(work) > 0 and not await asyncio.to_thread(lock.try_acquire, sign=False):
            self._groups.advance.note()
            await asyncio.sleep(AGENT_POLL_S)

    async def _respond(self, work: Work, key: str, attempts: int | None, held: AsyncExitStack) -> Response | None:
        """Return the Response; None where the task was cancelled before any rollout began, has expired, or was answered
        before a runner ended. What holds the Work is put into `held`."""
        await self._hold(work, key, held)
        if await asyncio.to_thread(self._groups.kept.was_answered, key):
            log.info("answered-before", "a Work came again whose Response is confirmed")
            return None
        queue_s = max(0.0, (work.deadline - work.admitted_at).total_seconds() - self._time.left_of(work))
        began = time.perf_counter()
        if (says := await self._revisions.why_another(work)) is not None:
            metrics.failed.inc()
            return self._answer_none(work, says)
        try:
            await self._await_registered(work)
            self._require_answerable(work, begun=await asyncio.to_thread(self._groups.kept.has_begun, key))
            tree = await self._tree(work)
        except Unanswerable as refusal:
            metrics.failed.inc()
            return response_of(work, (), source=SOURCE, error=one_line(str(refusal)))
        model = await self._model(work)
        if work.task_id in self._cancellations:
            metrics.cancelled.inc()
            log.info("cancelled", "not answered: its task was cancelled")
            return None
        if model is None:
            metrics.expired.inc()
            log.info("expired", "not answered: the deadline passed while it waited", deadline=work.deadline)
            return None
        samples = await self._groups.run(work, key, model, tree)
        metrics.answered.inc()
        latencies = GenerationLatencies(queue_s=queue_s, generate_s=time.perf_counter() - began, attempts=attempts)
        return response_of(work, samples, source=SOURCE, engine=model.served.engine, latencies=latencies)

    def _answer_none(self, work: Work, says: str) -> Response:
        """Return a Response whose samples are lost: by us, not by the program that is compared."""
        name = str(work.arm.program)
        log.warning("another-revision", says, program=name, experiment_id=work.arm.experiment_id)
        lost = [self._groups.not_begun(work, number, name, "lost", says) for number in range(work.sampling.n)]
        nothing = GenerationLatencies(queue_s=0.0, generate_s=0.0)
        return response_of(work, lost, source=SOURCE, latencies=nothing)

    def _program(self, work: Work, name: str) -> Program:
        """Return a program with the limits and tools that the task leaves it."""
        limits = self._profiles.limits(work)
        if work.registered_agent is None:
            return self._programs[name].within(limits).within(work.constraints)
        assert self._registered is not None
        program = self._registered.program(name)
        assert program is not None, "_await_registered comes first"
        return program.within(limits).within(work.constraints)

    async def _await_registered(self, work: Work) -> None:
        """Wait until the program of its registered agent is here. Raises Unanswerable where it can't be had in time."""
        if (name := work.registered_agent) is None:
            return
        if self._registered is None:
            raise Unanswerable(f"this runner has no manager (RATCHET_MANAGER_URL), so no registered agent {name!r}")
        since = self._registered.fetches
        while self._registered.program(name) is None:
            if (why := self._registered.why_not(name, since)) is not None:
                raise Unanswerable(f"registered agent {name!r} {why}")
            if self._time.left_of(work) <= 0 or work.task_id in self._cancellations:
                raise Unanswerable(f"registered agent {name!r} was not ready here before the deadline")
            self._groups.advance.note()
            await asyncio.sleep(AGENT_POLL_S)

    def _names(self, work: Work) -> tuple[str, ...]:
        """Those of the task, else the one of its arm, else all. Where that one is no longer in the file, the samples
        are dealt to those that are."""
        if work.registered_agent is not None:
            return (work.registered_agent,)
        has = self._programs.by_agent[work.agent_id]
        if work.programs is None and work.arm.program in has:
            return (str(work.arm.program),)
        return work.programs or has

    def _require_answerable(self, work: Work, *, begun: bool) -> None:
        """Raises Unanswerable."""
        if (why := self._profiles.unusable(work, begun=begun)) is not None:
            raise Unanswerable(why)
        has = self._programs.by_agent.get(work.agent_id, ())
        strange = [name for name in self._names(work) if name not in has]
        if strange and work.registered_agent is None:
            raise Unanswerable(f"agent {work.agent_id} has no program {strange[0]!r}: it has {', '.join(has)}")
        for name in self._names(work):
            program = self._program(work, name)
            if unfit := program.unfit(work.input) or program.undeclared_tool(work.constraints):
                raise Unanswerable(f"program {name}: {unfit}")

    async def _tree(self, work: Work) -> Tree | None:
        """Return the tree of its workspace. Raises Unanswerable where that is the task's fault, Retry where it can't be
        had now."""
        if work.workspace is None:
            return None
        assert self._groups.workspaces is not None
        try:
            tree = await self._groups.workspaces.tree(work.workspace)
        except WorkspaceError as error:
            raise Unanswerable(f"its workspace can't be used: {error}") from error
        except (WorkspaceUnavailable, SandboxError) as error:
            raise Retry(f"its workspace can't be had now: {error}") from error
        for name in self._names(work):
            if tree.size > (most := self._program(work, name).limits.disk_mb * MIB):
                raise Unanswerable(f"its workspace has {tree.size:,} bytes, and program {name} room for {most:,}")
        return tree

    async def _model(self, work: Work) -> Model | None:
        """Waits while the agent is away, so that its absence costs no task its attempts. None: too late."""
        while self._time.left_of(work) > 0 and work.task_id not in self._cancellations:
            try:
                model = await self._agents.model_for(work)
                self._away.pop(work.agent_id, None)
                return model
            except (ServerUnavailable, EngineError) as error:
                self._away[work.agent_id] = f"agent {work.agent_id} does not serve its model: {error}"
                self._groups.advance.note()
                await asyncio.sleep(AGENT_POLL_S)
        return None
