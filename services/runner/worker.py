"""The runner: a Work in, a Response with a rollout for each of its samples out.

A Work ends as a Response, an expired task, or a raised Retry or Reject. What a program does wrong ends its rollout and
nothing else; a rollout that is finished is on disk before anything else is done with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from fastapi import APIRouter

from ratchet.bus.in_hand import NEVER
from ratchet.bus.protocol import Bus, Delivery, decode_delivery, derived_id
from ratchet.bus.topology import APPROVALS, HIGH_PRIORITY, work_queue
from ratchet.concurrency.own_share import OwnShare
from ratchet.logs.best_answer import NOT_THERE, is_censored
from ratchet.logs.cascaded import is_asked_of_big
from ratchet.logs.names import is_own
from ratchet.openai.transport import ServerUnavailable
from ratchet.programs.declared import Program, Programs
from ratchet.rollouts.agent import Model, agent_client
from ratchet.rollouts.answers import Answers, key_of, response_of
from ratchet.rollouts.cancellations import TASK_CANCELLED, Cancellations
from ratchet.rollouts.kept_steps import Answered, KeptSteps, Question
from ratchet.rollouts.recording import RolloutOrder, Rollouts, why_ended
from ratchet.rollouts.rollout import Budget
from ratchet.runtime.runner import Subscription
from ratchet.service import failpoint
from ratchet.service.deadline_time import DeadlineTime, time_within
from ratchet.service.errors import EngineError, RatchetError, Reject, Retry, SettingsError, one_line
from ratchet.service.process_name import process_name
from ratchet.service.telemetry import Log, task_in_hand
from schemas.api.programs import RunningRollouts
from schemas.messages.approval_request import MOST_SHOWN, ApprovalRequest
from schemas.messages.base import Metadata
from schemas.messages.response import GenerationLatencies, Response, Sample
from schemas.messages.runner_rollouts import DeclaredProgram, RolloutProgress, RolloutState
from schemas.messages.work import Work
from services.runner import metrics
from services.runner.agents import Agents
from services.runner.api import runner_router
from services.runner.early_stop import EarlyStop, Moments
from services.runner.kept_rollouts import KeptRollouts
from services.runner.next_turn import ApprovedStart, end_by_person, ends_rollout
from services.runner.profiles import Profiles
from services.runner.progress import Progress
from services.runner.registered import Registered
from services.runner.revisions import Revisions
from services.runner.sandboxed import SandboxStart
from services.runner.settings import RunnerSettings
from services.runner.slots import Needs, NoTurn, Slots, cpus_here, memory_here_mb
from workbench.sandbox.job import WORKSPACE, Job, SandboxError
from workbench.sandbox.limits import MIB
from workbench.sandbox.sandbox import Sandbox
from workbench.trees import Tree
from workbench.workspaces.errors import WorkspaceError, WorkspaceUnavailable
from workbench.workspaces.workspaces import Workspaces

log = Log("runner")

AGENT_POLL_S = 0.5
ENDING_S = 60.0
"""Beyond its time a rollout may take so long to be ended and written down, and is no trouble."""
ANSWERS_KEPT_BYTES = 64 * 1024 * 1024
"""Bytes of Responses that are kept for a Work that comes again."""
NO_TURN = "it had no turn before its task's deadline"
SOURCE = "runner"


class WaitsForPerson(RatchetError):
    """Rollouts of a Work wait for a person: it comes again with the answer."""


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
        self._kept = KeptRollouts(settings.runner_dir, int(settings.runner_keep_gb * 1e9))
        self._unsaved: dict[str, dict[int, Sample]] = {}
        """Finished, and the disk did not take them yet."""
        self._memory_mb = settings.runner_memory_mb or memory_here_mb()
        self._cpus = settings.runner_cpus or cpus_here()
        self._slots = Slots(settings.sandbox_runs_at_once, self._memory_mb, self._cpus)
        self._own_share = OwnShare(settings.own_share, settings.sandbox_runs_at_once)
        metrics.waiting.set_function(lambda: self._slots.waiting)
        metrics.at_work.set_function(lambda: len(self._steps_until))
        self._answers = Answers(bus, ANSWERS_KEPT_BYTES)
        self._cancellations = Cancellations(self._forget_waiting)
        self._waiting: dict[str, str] = {}
        """Keys of the Work whose rollouts wait for a person, by task."""
        self._forgetting: set[asyncio.Task[None]] = set()
        self._revisions = Revisions(programs)
        self._progress = Progress(bus, process_name(), self._under_way, programs=self._declared_programs)
        self._rollouts = Rollouts(self._http, self._progress.note)
        self._profiles = Profiles(settings)
        self._registered: Registered | None = None
        self._sandbox: Sandbox | None = None
        self._workspaces: Workspaces | None = None
        self._trouble: str | None = None
        self._away: dict[str, str] = {}
        """Agents that did not serve their model when it was asked for last, and why."""
        self._steps_until: dict[object, float] = {}
        self._stepped_at = NEVER

    def routers(self) -> Sequence[APIRouter]:
        return [runner_router(self)]

    def running(self) -> RunningRollouts:
        return RunningRollouts(
            items=[one.as_running() for one in self._rollouts.underway],
            ended=self._progress.ended,
            waiting=self._slots.waiting,
            at_once=self._settings.sandbox_runs_at_once,
        )

    def _under_way(self) -> tuple[list[RolloutProgress], int, int]:
        running = [one.progress() for one in self._rollouts.underway]
        return running, self._slots.waiting, self._settings.sandbox_runs_at_once

    async def _declared_programs(self) -> tuple[DeclaredProgram, ...]:
        await asyncio.to_thread(self._revisions.look_at_all)
        return self._revisions.declared

    async def start(self) -> None:
        """Raises SandboxRefused where the sandbox does not hold here, SettingsError for a program that is not there."""
        self._time.start()
        self._trouble = "trying the sandbox"
        await asyncio.to_thread(self._kept.sweep)
        self._sandbox = sandbox = await Sandbox.opened_or_shown(self._settings)
        self._workspaces = Workspaces(self._settings, sandbox)
        for name in self._programs.names:
            await self._try(sandbox, name, self._programs[name])
        await self._declared_programs()
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
        await self._try(sandbox, name, program)

    async def _try(self, sandbox: Sandbox, name: str, program: Program) -> None:
        """Tell whether what is to be run can be found from inside. Raises SettingsError."""
        first = program.command[0]
        looks = () if "{" in first or (("/" in first) and not first.startswith("/")) else (first,)
        script = 'for one in "$@"; do command -v -- "$one" >/dev/null || exit 1; done'
        job = Job(
            ("sh", "-c", script, "sh", *looks),
            mounts=program.binds,
            data={path: text.encode() for path, text in program.data.items()},
            environment=program.environment,
            root=program.image.folder if program.image else None,
            directory=program.directory or WORKSPACE,
        )
        try:
            result = await sandbox.run(job)
        except SandboxError as error:
            raise SettingsError(
                f"program {name}: its sandbox can't be set up ({error}): what it binds must be there, in folders that "
                "every user may pass"
            ) from error
        if not result.succeeded:
            sees = "its image" if program.image else "/usr of this machine"
            raise SettingsError(
                f"program {name}: {first!r} is not to be found in its sandbox, which has {sees} and what "
                f"the program binds: bind its folder and name it by its whole path, or set PATH in its environment"
            )

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
        return [Subscription(queue, self.handle, prefetch, advanced_at=self.advanced_at) for queue in queues]

    @property
    def _models_of_registered(self) -> set[str]:
        """Agents whose model registered agents may use: those whose address is known."""
        return set(self._settings.runner_agents) if self._settings.manager_url else set()

    def advanced_at(self) -> float:
        """A rollout ends by itself, so it gets on until then; and so does the wait for an agent that is away."""
        return max(self._stepped_at, max(self._steps_until.values(), default=NEVER))

    def trouble(self) -> str | None:
        return self._trouble or next(iter(self._away.values()), None)

    async def stop(self) -> None:
        self._time.stop()
        await self._progress.stop()
        if self._registered is not None:
            await self._registered.stop()
        await self._http.aclose()
        await self._profiles.close()
        if self._workspaces is not None:
            await self._workspaces.close()

    async def handle(self, delivery: Delivery) -> None:
        """Return when the Response is confirmed, the task has expired, or rollouts wait for a person who was asked."""
        work = decode_delivery(Work, delivery)
        if work.registered_agent is None and work.agent_id not in self._programs.by_agent:
            raise Reject(f"this Work is for agent {work.agent_id!r}, which has no programs here")
        task_in_hand.set(work.task_id)
        key = key_of(work)
        own = is_own(work.arm.experiment_id) and not is_asked_of_big(work.arm.experiment_id)
        turn = self._own_share.turn(work.sampling.n, own=own, within_s=self._left_s(work))
        async with turn:
            try:
                if await self._answers.answer(work, delivery.body, lambda: self._respond(work, key, delivery.attempts)):
                    await asyncio.to_thread(self._kept.note_answered, key)
            except WaitsForPerson:
                self._waiting[work.task_id] = key
                if work.task_id in self._cancellations:
                    self._forget_waiting(work.task_id)
                return
            self._unsaved.pop(key, None)
            self._waiting.pop(work.task_id, None)
            await asyncio.to_thread(self._kept.remove, key)

    def _forget_waiting(self, task_id: str) -> None:
        """The task was cancelled, or has ended: what is kept of rollouts that wait is removed."""
        if (key := self._waiting.pop(task_id, None)) is not None:
            task = asyncio.create_task(asyncio.to_thread(self._kept.remove, key))
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    async def _respond(self, work: Work, key: str, attempts: int | None) -> Response | None:
        """Return the Response; None where the task was cancelled before any rollout began, has expired, or was answered
        before a runner ended."""
        if await asyncio.to_thread(self._kept.was_answered, key):
            log.info("answered-before", "a Work came again whose Response is confirmed")
            return None
        queue_s = max(0.0, (work.deadline - work.admitted_at).total_seconds() - self._left_s(work))
        began = time.perf_counter()
        if (says := await self._another(work)) is not None:
            metrics.failed.inc()
            return self._answer_none(work, says)
        try:
            await self._await_registered(work)
            self._require_answerable(work)
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
        samples = await self._group(work, key, model, tree)
        metrics.answered.inc()
        latencies = GenerationLatencies(queue_s=queue_s, generate_s=time.perf_counter() - began, attempts=attempts)
        return response_of(work, samples, source=SOURCE, engine=model.served.engine, latencies=latencies)

    async def _another(self, work: Work) -> str | None:
        """Return why no program here is the one that the Work is about; None where one is, and where any will do."""
        name, revision = work.arm.program, work.arm.program_revision
        if work.programs is not None or name is None or revision is None:
            return None
        has = name in self._programs.by_agent[work.agent_id]
        here = await asyncio.to_thread(self._revisions.of, name) if has else None
        if here == revision:
            return None
        found = f"revision {here[:8]}" if here else "none that can be read" if has else "none of that name"
        return f"its experiment is about program {name} in revision {revision[:8]}, and here is {found}"

    def _answer_none(self, work: Work, says: str) -> Response:
        """Return a Response whose samples are lost: by us, not by the program that is compared."""
        name = str(work.arm.program)
        log.warning("another-revision", says, program=name, experiment_id=work.arm.experiment_id)
        lost = [self._lost_sample(work, number, name, says) for number in range(work.sampling.n)]
        nothing = GenerationLatencies(queue_s=0.0, generate_s=0.0)
        return response_of(work, lost, source=SOURCE, latencies=nothing)

    def _lost_sample(self, work: Work, number: int, name: str, says: str) -> Sample:
        """One that was never begun."""
        self._progress.note(without_turn(work, number, name, "lost", says))
        return Sample(text="", status="lost", program=name, says=why_ended("lost", says))

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
            if self._left_s(work) <= 0 or work.task_id in self._cancellations:
                raise Unanswerable(f"registered agent {name!r} was not ready here before the deadline")
            self._stepped_at = time.monotonic()
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

    def _require_answerable(self, work: Work) -> None:
        """Raises Unanswerable."""
        if (why := self._profiles.unusable(work)) is not None:
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
        assert self._workspaces is not None
        try:
            tree = await self._workspaces.tree(work.workspace)
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
        while self._left_s(work) > 0 and work.task_id not in self._cancellations:
            try:
                model = await self._agents.model_for(work)
                self._away.pop(work.agent_id, None)
                return model
            except (ServerUnavailable, EngineError) as error:
                self._away[work.agent_id] = f"agent {work.agent_id} does not serve its model: {error}"
                self._stepped_at = time.monotonic()
                await asyncio.sleep(AGENT_POLL_S)
        return None

    def _left_s(self, work: Work) -> float:
        return self._time.left_s(work.deadline, work.admitted_at, work.arm.sequence)

    async def _group(self, work: Work, key: str, model: Model, tree: Tree | None) -> list[Sample]:
        """All samples, of which those that are kept are not run again.

        Raises WaitsForPerson, and what a disk says, once all have ended.
        """
        done = await asyncio.to_thread(self._kept.of, key) | self._unsaved.get(key, {})
        done = {number: sample for number, sample in done.items() if number < work.sampling.n}
        moments = Moments(datetime.now(UTC), [sample.ended_at for sample in done.values() if sample.ended_at])
        if done:
            metrics.resumed.labels().inc(len(done))
            log.info("resumed", f"{len(done)} of {work.sampling.n} rollouts are there from before")
        if unsaved := self._unsaved.get(key):
            await self._save(key, unsaved)
        missing = [number for number in range(work.sampling.n) if number not in done]
        stop = EarlyStop(work, self._http, self._settings.runner_scorer_url, lambda: self._left_s(work))
        looking = [asyncio.create_task(stop.look_at(sample)) for sample in done.values()] if missing else []
        try:
            if looking:
                left_s = self._left_s(work)
                within_s = left_s - time_within(left_s, None)
                self._stepped_at = time.monotonic() + within_s
                await asyncio.wait(looking, timeout=max(0.0, within_s))
                self._stepped_at = time.monotonic()
            steps = await asyncio.to_thread(lambda: [self._steps(work, key, number) for number in missing])
            with self._cancellations.ending(work.task_id, lambda: stop.call_off(TASK_CANCELLED)):
                ran = await asyncio.gather(
                    *(
                        self._one(work, key, number, model, tree, stop, moments, its)
                        for number, its in zip(missing, steps, strict=True)
                    ),
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

    async def _one(
        self,
        work: Work,
        key: str,
        number: int,
        model: Model,
        tree: Tree | None,
        stop: EarlyStop,
        moments: Moments,
        steps: KeptSteps,
    ) -> Sample | Question:
        """Return the sample, or the question that it waits for, which is published then. Closes the steps."""
        names = self._names(work)
        name = names[number % len(names)]
        limits = self._program(work, name).limits
        budget = Budget(limits.calls, limits.tokens)
        stop.begin(budget)
        kept = None
        try:
            sample = None
            if (newest := steps.last_answer) is not None and ends_rollout(*newest):
                standing = await asyncio.to_thread(self._kept.standing, key, number)
                sample = standing and ended_by_person(standing, *newest)
            if sample is None and (question := steps.open_question) is not None:
                await self._ask(work, key, number, name, question)
                return question
            if sample is None:
                sample = await self._in_turn(work, number, name, model, tree, budget, steps)
            if steps.diverged is not None and not budget.called_off:
                says = steps.diverged
                if steps.has_answers and steps.times_anew:
                    return self._lost_sample(work, number, name, f"{says}, for the second time")
                log.warning("diverged", f"sample {number} begins anew: {says}", sample=number, program=name)
                steps.begin_anew(says)
                again = Budget(limits.calls, limits.tokens)
                stop.begin(again)
                await stop.note_end(budget, None)
                budget = again
                sample = await self._in_turn(work, number, name, model, tree, budget, steps)
            if steps.waits is not None and not budget.called_off:
                await asyncio.to_thread(self._kept.put_standing, key, number, sample)
                failpoint.reach("rollout-waits")
                await self._ask(work, key, number, name, steps.waits)
                return steps.waits
            failpoint.reach("rollout-ended")
            if sample.status not in NOT_THERE:
                if is_censored(work.select):
                    sample = sample.model_copy(update={"ended_at": moments.now()})
                self._unsaved.setdefault(key, {})[number] = sample
                await self._save(key, {number: sample})
                kept = sample
                steps.remove()
        finally:
            steps.close()
            await stop.note_end(budget, kept)
        return sample

    def _steps(self, work: Work, key: str, number: int) -> KeptSteps:
        """Open the steps of a rollout, and note what people answered it. Raises JournalError."""
        steps = self._kept.steps(key, number)
        for given in work.approvals or ():
            if given.sample == number:
                steps.answer(given.approval_id, given.decision, given.text)
        return steps

    async def _ask(self, work: Work, key: str, number: int, name: str, question: Question) -> None:
        """Return when the orchestrator's queue has the question; it knows one that comes again."""
        standing = await asyncio.to_thread(self._kept.standing, key, number)
        request = ApprovalRequest(
            approval_id=question.approval_id,
            task_id=work.task_id,
            agent_id=work.agent_id,
            metadata=Metadata(timestamp=datetime.now(UTC), source=SOURCE),
            program=name,
            sample=number,
            question=question.question,
            options=question.options,
            ends=question.ends,
            answer=standing.text[-MOST_SHOWN:] if standing else "",
            patch=standing.artifact.patch[:MOST_SHOWN] if standing and standing.artifact else "",
        )
        message_id = derived_id(question.approval_id, "asked")
        await self._bus.publish(APPROVALS, request.encode(), type=ApprovalRequest.TYPE, message_id=message_id)

    async def _in_turn(
        self, work: Work, number: int, name: str, model: Model, tree: Tree | None, budget: Budget, steps: KeptSteps
    ) -> Sample:
        waited = time.monotonic()
        left_s, limits = time_within(self._left_s(work), None), self._program(work, name).limits
        try:
            async with self._slots.of(work.priority, left_s, budget.spent, Needs(limits.memory_mb, limits.cpus)):
                metrics.wait_seconds.observe(time.monotonic() - waited)
                if (says := await self._another(work)) is not None:  # it may have changed while others had their turn
                    log.warning("another-revision", says, program=name, experiment_id=work.arm.experiment_id)
                    return self._lost_sample(work, number, name, says)
                return await self._run(work, number, name, model, tree, budget, steps)
        except NoTurn:
            if budget.called_off:
                says = str(budget.says)
                self._progress.note(without_turn(work, number, name, "cancelled", says))
                return Sample(text="", status="cancelled", program=name, says=says)
            log.warning("lost", f"sample {number} had no turn before its deadline", sample=number, program=name)
            return self._lost_sample(work, number, name, NO_TURN)

    async def _run(
        self, work: Work, number: int, name: str, model: Model, tree: Tree | None, budget: Budget, steps: KeptSteps
    ) -> Sample:
        assert self._sandbox is not None and self._workspaces is not None
        program = self._program(work, name)
        seconds = time_within(self._left_s(work), program.limits.seconds)
        began = time.monotonic()
        step = object()
        self._steps_until[step] = began + seconds + ENDING_S
        try:
            once = SandboxStart(self._sandbox, self._workspaces, program, work, number, seconds, tree)
            start = ApprovedStart(once, work.approval or program.approval, steps)
            foreign = self._profiles.roles(work, budget, steps)
            order = RolloutOrder(work, number, name, model, start, seconds, budget, steps, foreign)
            sample = await self._rollouts.run(order)
        finally:
            del self._steps_until[step]
            self._stepped_at = time.monotonic()
        metrics.observe(name, sample, time.monotonic() - began)
        return sample

    async def _save(self, key: str, samples: dict[int, Sample]) -> None:
        """Raises StorageUnavailable where the disk takes nothing now: they are kept in memory, and saved next time."""
        await asyncio.to_thread(self._kept.put, key, dict(samples))
        failpoint.reach("rollout-kept")
        unsaved = self._unsaved.get(key, {})
        for number in list(samples):
            unsaved.pop(number, None)


def ended_by_person(sample: Sample, question: Question, answer: Answered) -> Sample:
    """Return a rollout as it stands, as the answer to its last question has it."""
    status, says = end_by_person(question.question, answer)
    return sample if status is None else sample.model_copy(update={"status": status, "says": says})


def without_turn(work: Work, number: int, name: str, state: RolloutState, says: str) -> RolloutProgress:
    return RolloutProgress(
        task_id=work.task_id,
        agent_id=work.agent_id,
        program=name,
        sample=number,
        state=state,
        started_at=datetime.now(UTC),
        seconds=0.0,
        calls=0,
        sampled_tokens=0,
        says=says,
    )
