"""The orchestrator as a service: leader or standby, what it consumes, and its clocks.

The path of a task is in intake.py and settler.py, the way of an adapter in promoter.py; here they are put together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TypeVar

from fastapi import APIRouter

from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.retention import remove_leftovers
from ratchet.bus.protocol import Bus, Delivery, decode_delivery
from ratchet.bus.topology import (
    ADAPTER_REPORTS,
    ADAPTERS,
    APPROVALS,
    AUDIT_SCORES,
    DRAFT_RESPONSES,
    FEEDBACK,
    KEPT_RESPONSES,
    REWARDS,
    ROLLOUTS_TOPIC,
    TASKS,
    topology_of,
)
from ratchet.files.append_file import AppendFile
from ratchet.http.work import Threads
from ratchet.logs.follower import FollowerNote, remove_follower_note, write_follower_note
from ratchet.logs.leadership import RENEWALS, Arbiter, Leadership
from ratchet.logs.names import APPROVALS as APPROVAL_LOG
from ratchet.logs.names import AUDITS, LABELS, SEALS, is_own
from ratchet.logs.names import FEEDBACK as FEEDBACK_LOG
from ratchet.logs.retention.plan import Bound
from ratchet.logs.tenants import AgentTenants
from ratchet.programs.declared import roles_by_agent, untrained_agents
from ratchet.runtime.runner import Subscription
from ratchet.service.errors import JournalError, RegistryError, Reject, StorageUnavailable
from ratchet.service.settings import broker_user, pairs
from ratchet.service.telemetry import Log
from schemas.messages.adapter_event import AdapterReport
from schemas.messages.result import Result
from schemas.messages.training import AdapterTrained
from schemas.messages.work import Arm, Work
from schemas.records.audit import AuditedTask
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.api.chat import chat_router
from services.orchestrator.api.chat_service import ChatService
from services.orchestrator.api.dialects import dialects_router
from services.orchestrator.api.feedback import agreement_router, approvals_router, feedback_router
from services.orchestrator.api.page import page_router
from services.orchestrator.api.routers import OrchestratorApi
from services.orchestrator.api.tasks import tasks_router
from services.orchestrator.approvals.approval_service import ApprovalLog, ApprovalService
from services.orchestrator.auditing.audits import AuditLog, Audits
from services.orchestrator.auditing.labels import Calibrations, LabelLog
from services.orchestrator.cascade.agent_cascade import AgentCascade
from services.orchestrator.cascade.cascades import Cascades
from services.orchestrator.clocks import Clocks
from services.orchestrator.feedback.feedback_service import FeedbackLog, FeedbackService
from services.orchestrator.ledger.keyed_log import KeyedLogSettings
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.ledger.log_retention import LogRetention
from services.orchestrator.observation.gauges import DiskGauges, QueueGauges
from services.orchestrator.observation.overview import LOOK_EVERY_S
from services.orchestrator.promotion.anchors import Anchors
from services.orchestrator.promotion.arms import Arms, names_its_own
from services.orchestrator.promotion.evidence_pool import EvidencePool, FleetLogs
from services.orchestrator.promotion.gate import Gate
from services.orchestrator.promotion.own_tasks import OwnTasks
from services.orchestrator.promotion.promoter import Promoter
from services.orchestrator.promotion.replicas import Announcer, Replicas
from services.orchestrator.promotion.shadow_gate import ShadowGate
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.tasks.adaptive_samples import AdaptiveSamples
from services.orchestrator.tasks.admission import AdmissionPolicy
from services.orchestrator.tasks.completion import Completion
from services.orchestrator.tasks.deadline_clock import DeadlineClock
from services.orchestrator.tasks.intake import Intake
from services.orchestrator.tasks.kept_responses import KeptResponses
from services.orchestrator.tasks.result_sender import ResultSender, Senders
from services.orchestrator.tasks.reward_backlog import RewardBacklog, RewardBroadcaster
from services.orchestrator.tasks.settler import Settler
from services.orchestrator.tasks.task_history import logged_lines
from services.orchestrator.tasks.task_service import ResultWaiters, TaskService
from services.orchestrator.training.scheduler import TrainingScheduler
from services.orchestrator.training.trigger import TrainingPolicy

log = Log("orchestrator")

T = TypeVar("T")

STANDBY_POLL_S = 0.2
COMMIT_EVERY_S = 0.5
SWEEP_EVERY_S = 1.0
TELL_EVERY_S = 0.25
TURN_EVERY_S = 0.25
POOL_EVERY_S = 0.25
WATCH_EVERY_S = 0.5
NEWS_EVERY_S = 0.25
AUDIT_EVERY_S = 0.25
APPROVALS_EVERY_S = 0.5
CASCADE_EVERY_S = 0.1
GAUGES_EVERY_S = 5.0
RETAIN_EVERY_S = 30.0
STORAGE_EVERY_S = 2.0
STORAGE_TIMEOUT_S = 5.0
SWEEP_AT_ONCE = 500
DEADLINES = "deadlines"
"""The note in the index that carries the clock of deadlines over a restart."""


def now() -> datetime:
    return datetime.now(UTC)


def _arbiter(settings: OrchestratorSettings) -> Arbiter | None:
    if not settings.lease:
        return None
    from ratchet.logs.kubernetes_lease import KubernetesLease

    return KubernetesLease.of_pod(settings.lease, lease_s=settings.lease_s)


class Orchestrator:
    """An orchestrator works while it leads the logs folder, and waits otherwise (ratchet/logs/leadership.py)."""

    name = "orchestrator"

    def __init__(
        self,
        settings: OrchestratorSettings,
        bus: Bus,
        *,
        clock: Callable[[], datetime] = now,
        seconds: Callable[[], float] = monotonic,
        file_type: type[AppendFile] = AppendFile,
        on_lost: Callable[[str], None] = lambda _: None,
        pace: float = 1.0,
    ) -> None:
        """`clock` may jump, `seconds` never does. `file_type`: of the logs of tasks. `pace`: as of Clocks.

        `on_lost` is told once another leads: it ends the process, in whatever thread that was found out.
        """
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._seconds = seconds
        self._leadership = Leadership(
            settings.logs_dir, lease_s=settings.lease_s, seconds=seconds, on_lost=on_lost, arbiter=_arbiter(settings)
        )
        seals = settings.adapters_dir / SEALS / (str(settings.fleet) if settings.fleet else "")
        self.ledger = Ledger(
            settings.logs_dir,
            segment_bytes=settings.segment_bytes,
            index_dir=settings.index_folder,
            file_type=file_type,
            seconds=seconds,
            fence=self._leadership,
            seals=seals,
        )
        self._deadlines = DeadlineClock(clock, seconds, lambda: self.ledger.sequence)
        self._backlog = RewardBacklog(bus, seconds)
        self._own_tasks = OwnTasks()
        results = ResultSender(bus, self.ledger)
        senders = Senders(
            settings.tenants,
            settings.namespace,
            is_required=settings.require_tenant,
            own_user=broker_user(settings.amqp_url.get_secret_value()),
        )
        tenants = AgentTenants(pairs(settings.agent_tenants), settings.shared_learning)
        policy = AdmissionPolicy(
            settings.agents,
            settings.sampling,
            timedelta(seconds=settings.task_deadline_s),
            timedelta(seconds=settings.longest_deadline_s),
            settings.max_logged_bytes,
            settings.judge_selects,
            tenants,
            has_manager=settings.manager_url is not None,
        )
        arms = {agent: Arms(agent) for agent in settings.agents}
        for one in arms.values():
            one.fleet = settings.fleet
        self._untrained = untrained_agents(settings.programs, settings.agents)
        for agent, roles in roles_by_agent(settings.programs, settings.agents).items():
            arms[agent].lead({role: arms[played_by] for role, played_by in roles.items()})
        self._samples = {agent: AdaptiveSamples(one, settings.adaptive) for agent, one in arms.items()}
        self._intake = Intake(
            bus,
            self.ledger,
            results,
            policy,
            arms,
            max_message_bytes=settings.max_message_bytes,
            clock=self._deadlines.now,
            read_registry=self._read_registry,
            samples=lambda agent_id: self._samples[agent_id].draw(),
            senders=senders,
            admitted=self._note_admitted,
        )
        self._news = RewardBroadcaster(bus, now)
        kept = KeptResponses(self.ledger, external_scorer=settings.external_scorer, pace=pace)
        self._waits = ResultWaiters()
        self._completion = Completion(bus, self.ledger, kept)
        keyed: KeyedLogSettings = {
            "segment_bytes": settings.segment_bytes,
            "index_dir": settings.index_folder,
            "fence": self._leadership,
        }
        feedback_log = FeedbackLog(settings.logs_dir, **keyed, seals=seals)
        self._feedback = FeedbackService(self.ledger, feedback_log, now, senders)
        self._threads = Threads(self.name)
        self._store = RegistryStore.from_settings(settings, self._leadership.check)
        self._replicas = {agent: Replicas() for agent in settings.agents}
        self._audit_log = AuditLog(settings.logs_dir, **keyed)
        label_log = LabelLog(settings.logs_dir, **keyed)
        approval_log = ApprovalLog(settings.logs_dir, **keyed)
        self._keyed_logs = (feedback_log, self._audit_log, label_log, approval_log)
        self._calibrations = Calibrations(
            self.ledger,
            label_log,
            self._audit_log,
            settings.agents,
            self._threads,
            logs_dir=settings.logs_dir,
            clock=clock,
        )
        self._audits = Audits(
            bus,
            self.ledger,
            self._audit_log,
            arms,
            settings.audits,
            logs_dir=settings.logs_dir,
            on_logged=self._calibrations.add_verdict,
            on_pair=self._note_verdict,
            clock=clock,
            seconds=seconds,
        )
        self._objectives = settings.objectives
        self._cascades = Cascades(
            {
                agent: AgentCascade(
                    arms[agent],
                    arms[big],
                    settings.cascades,
                    self._store,
                    self.ledger,
                    self._audit_log,
                    self._read_registry,
                    logs_dir=settings.logs_dir,
                    clock=clock,
                )
                for agent, big in settings.cascades.big.items()
            },
            self.ledger,
            self._audits,
            lambda: self._settler,
            self._intake.ask,
            self._send_again,
            logs_dir=settings.logs_dir,
            clock=clock,
        )
        self._settler = Settler(
            self.ledger,
            results,
            self._note_closed,
            clock=clock,
            max_logged_bytes=settings.max_logged_bytes,
            agents=settings.agents,
            kept=kept,
            second_verdict=self._audits.take,
            router=self._cascades,
        )
        self._task_service = TaskService(bus, self._intake, self._settler, self.ledger, self._waits)
        self._chat_service = ChatService(
            self._task_service,
            self.ledger,
            settings.logs_dir,
            arms,
            threads=self._threads,
            names=settings.chat_agents,
            read_registry=self._read_registry,
            group_size=settings.adaptive.floor,
            clock=now,
            tenants=tenants,
        )
        self._promoters = {agent: self._promoter(one) for agent, one in arms.items()}
        self._pool = EvidencePool(
            settings.pool or settings.logs_dir,
            [FleetLogs(number, folder) for number, folder in enumerate((settings.logs_dir, *settings.pooled_logs))]
            if settings.pooled_logs
            else [],
            self._promoters,
            segment_bytes=settings.segment_bytes,
            fence=self._leadership,
        )
        self._anchors = {agent: self._anchors_of(promoter) for agent, promoter in self._promoters.items()}
        self._api = OrchestratorApi(
            settings,
            bus,
            self._store,
            self.ledger,
            self._promoters,
            self._replicas,
            self._samples,
            self._cascades.agents,
            self.trouble,
            kept.trouble,
            self._read_registry,
            self._threads,
            now,
        )
        self._approvals = ApprovalService(bus, self.ledger, approval_log, self._api.hub, now)
        self._gauges = QueueGauges(bus, topology_of(settings), settings.namespace)
        self._retention = LogRetention(
            self.ledger,
            {
                FEEDBACK_LOG: feedback_log.forget,
                AUDITS: self._audit_log.forget,
                LABELS: label_log.forget,
                APPROVAL_LOG: approval_log.forget,
            },
            Bound.of(settings.log_keep_gb, settings.log_keep_days),
            logs_dir=settings.logs_dir,
            index_dir=settings.index_folder,
            adapters_dir=settings.adapters_dir,
            fence=self._leadership,
            clock=now,
            follower=settings.fleet_number,
        )
        self._disks = DiskGauges({"logs": settings.logs_dir, "adapters": settings.adapters_dir})
        self._standby = False
        self._noted: FollowerNote | None = None
        self._clocks = Clocks(self._leadership.check, pace)
        self._lease_clock = Clocks()
        self._renewing = ThreadPoolExecutor(1, "lease")

    def _promoter(self, arms: Arms) -> Promoter:
        settings, replicas = self._settings, self._replicas[arms.agent_id]
        announcer = Announcer(arms, self._bus, now)
        shadow = ShadowGate(
            arms,
            self._intake.ask,
            self._own_tasks,
            settings.experiments,
            self._read_logged,
            logs_dir=settings.logs_dir,
            adapters_dir=settings.adapters_dir,
            prompts=settings.replay_prompts,
            deadline_s=settings.golden_deadline_s,
            samples=settings.samples,
            from_traffic=settings.golden_from_traffic,
            first_tasks=lambda: self._anchors[arms.first.agent_id].tasks,
            revision=lambda: announcer.revision,
            clock=now,
            seconds=monotonic,
        )
        gate = Gate(
            arms,
            announcer,
            replicas,
            self._bus,
            shadow,
            adapters_dir=settings.adapters_dir,
            max_rank=settings.adapter_max_rank,
            timeout_s=settings.validation_timeout_s,
            programs_answer=lambda: bool(self._api.rollouts.declared_programs(arms.first.agent_id)),
            seconds=monotonic,
        )
        policy = TrainingPolicy(0, 0.0) if arms.agent_id in self._untrained else settings.training
        training = TrainingScheduler(arms.agent_id, self._bus, self.ledger, policy, now, self._deadlines.even)
        return Promoter(
            arms,
            announcer,
            replicas,
            gate,
            training,
            self._store,
            self.ledger,
            settings.experiments,
            logs_dir=settings.logs_dir,
            keep=settings.keep_adapters,
            audits_end=lambda: self._audit_log.end,
            clock=now,
            seconds=monotonic,
            told=lambda: self._api.rollouts.declared_programs(arms.agent_id),
            pooled=lambda: self._pool.positions,
            followers=settings.pooled_logs,
        )

    async def _read_logged(self, task_id: str) -> tuple[Work, Sequence[Interaction]] | None:
        """A task as it was admitted and answered; None where the logs have it no more, or not the agent answered it.

        Raises JournalError.
        """
        known = self.ledger.find(task_id)
        if known is None or known.lines is None:
            return None
        work = await self.ledger.work_of(known)
        lines = await asyncio.to_thread(logged_lines, self._settings.logs_dir, known)
        return (work, lines) if lines and not names_its_own(work) else None

    async def _send_again(self, task_id: str) -> None:
        if (known := self.ledger.find(task_id)) is not None:
            await self._intake.send_again(known)

    async def _read_registry(self, agent_id: str) -> None:
        """Has the agent's tasks, and what is told of it, go by the registry as it is now; where that fails, the next
        turn tells."""
        if (promoter := self._promoters.get(agent_id)) is not None:  # the registry may know others' agents
            with suppress(RegistryError, JournalError, OSError):
                await promoter.read_registry()

    def _anchors_of(self, promoter: Promoter) -> Anchors:
        arms = promoter.arms

        def arm(experiment_id: str, sequence: int) -> Arm:
            return arms.arm(arms.adapters.primary, sequence, experiment_id=experiment_id)

        return Anchors(
            arms.agent_id,
            self._settings.adapters_dir,
            self._intake.rescore,
            self._own_tasks,
            arm,
            promoter,
            tolerance=self._settings.anchor_tolerance,
        )

    def routers(self) -> Sequence[APIRouter]:
        return [
            page_router(),
            tasks_router(
                self._task_service, self.ledger, self._settings.logs_dir, self._feedback.of_task, self._threads
            ),
            chat_router(self._chat_service),
            dialects_router(self._chat_service),
            feedback_router(self._feedback),
            agreement_router(self._calibrations),
            approvals_router(self._approvals),
            *self._api.routers(),
        ]

    async def start(self) -> None:
        """Wait to lead, then repair, catch up, and take up the experiments that were running."""
        await self._become_leader()
        await self.ledger.open()
        for task_id in self.ledger.unanswered:
            self._settler.add_pending_result(task_id)
        self._deadlines.start(self.ledger.index.note(DEADLINES), await self.ledger.newest_line())
        for keyed_log in self._keyed_logs:
            await keyed_log.open()
        self._approvals.start()
        self._calibrations.start()
        await asyncio.to_thread(self._take_up_registry)
        for promoter in self._promoters.values():
            await promoter.start()
        if self._settings.fleet is not None:
            await self._pool.start()
        await self._audits.start()
        await self._cascades.start()
        for anchors in self._anchors.values():
            anchors.start()
        for agent_id, samples in self._samples.items():
            samples.take_up(self.ledger.index.note(f"samples/{agent_id}"))
        self._count_open_works()
        await self._api.watcher.start()
        if self._settings.has_runner:
            await self._bus.listen(ROLLOUTS_TOPIC, self._api.rollouts.receive_broadcast)
        metrics.is_active.set(1)
        self._objectives.show_budgets()
        self._start_clocks()

    def _start_clocks(self) -> None:
        start = self._clocks.start
        start("index-commit", self._commit, COMMIT_EVERY_S)
        start("deadline-sweep", self._sweep, SWEEP_EVERY_S)
        start("telling", self._settler.send_pending_results, TELL_EVERY_S)
        start("reward-news", self._news.flush, NEWS_EVERY_S)
        start("approvals", self._approvals.turn, APPROVALS_EVERY_S)
        start("audits", self._audits.turn, AUDIT_EVERY_S)
        if self._cascades.agents:
            start("cascades", self._cascades.turn, CASCADE_EVERY_S)
        start("queue-gauges", self._gauges.refresh, GAUGES_EVERY_S)
        start("quality-gauges", self._api.quality.refresh, GAUGES_EVERY_S)
        start("disk-gauges", self._disks.refresh, GAUGES_EVERY_S)
        start("storage", self._check_storage, STORAGE_EVERY_S)
        start("log-retention", self._retention.turn, RETAIN_EVERY_S)
        start("watcher", self._api.watcher.turn, WATCH_EVERY_S)
        start("overview", self._api.overview.look, LOOK_EVERY_S)
        for name, promoter in self._promoters.items():
            start(f"adapters-{name}", promoter.turn, TURN_EVERY_S)
        if self._settings.fleet is not None:
            start("evidence-pool", self._pool.turn, POOL_EVERY_S)
        if self._settings.pool is not None:  # not before: the open tasks are counted now
            start("adapters-in-use", self._note_adapters_in_use, POOL_EVERY_S)
        decides = not self._settings.fleet
        for name, anchors in self._anchors.items() if self._settings.anchor_every_s and decides else ():
            start(f"anchors-{name}", anchors.check, self._settings.anchor_every_s, first=False)

    def subscriptions(self) -> Sequence[Subscription]:
        prefetch = self._settings.orchestrator_prefetch
        kept = [Subscription(KEPT_RESPONSES, self._completion.keep, prefetch)] if self._settings.external_scorer else []
        return [
            Subscription(REWARDS, self._backlog.count_rewards(self._settler.handle), prefetch),
            Subscription(TASKS, self._intake.handle, prefetch),
            Subscription(DRAFT_RESPONSES, self._completion.complete, prefetch),
            Subscription(FEEDBACK, self._feedback.handle, prefetch),
            Subscription(ADAPTERS, self._handle_trained, 1),
            Subscription(ADAPTER_REPORTS, self._handle_report, prefetch),
            *kept,
            *([Subscription(APPROVALS, self._approvals.handle, prefetch)] if self._settings.has_runner else []),
            *([Subscription(AUDIT_SCORES, self._audits.handle, prefetch)] if self._settings.auditor else []),
        ]

    def trouble(self) -> str | None:
        if self._standby:
            return f"standby: the orchestrator of {self._leadership.holder()} holds {self._leadership.path}"
        return self._lease_clock.trouble() or self._clocks.trouble()

    async def stop(self) -> None:
        self._api.close()
        await self._clocks.stop()
        if self._clocks.running:
            for promoter in self._promoters.values():
                await promoter.stop()
            await self._pool.close()
            for keyed_log in self._keyed_logs:
                await keyed_log.close()
            await self.ledger.close()
        self._threads.close()
        await self._lease_clock.stop()
        self._renewing.shutdown()
        self._leadership.release()

    # --- what it hears ---------------------------------------------------------------------------------------------

    def _note_admitted(self, work: Work) -> None:
        self._cascades.note_admitted(work)

    def _note_verdict(self, verdict: AuditedTask) -> None:
        self._cascades.note_verdict(verdict)

    def _note_closed(self, work: Work, lines: list[Interaction], result: Result) -> None:
        self._own_tasks.note_closed(work.task_id, lines)
        if not is_own(work.arm.experiment_id):
            self._objectives.count(work.agent_id, result.status, lines[0].latencies.total_s)
        self._news.add(work.agent_id, lines)
        self._waits.notify_closed(work.task_id)
        self._api.watcher.publish_settled(work, lines, result)
        self._api.quality.add_closed_task(lines)
        if samples := self._samples.get(work.agent_id):
            samples.observe(work, lines)
        if promoter := self._promoters.get(work.agent_id):
            promoter.note_closed(work, lines)
            for mate in promoter.arms.mates if promoter.arms.team else ():
                self._promoters[mate.agent_id].training.note_closed(lines)
            self._anchors[work.agent_id].take_closed(lines, work)
            self._audits.consider(work, lines)
        self._cascades.note_closed(work, lines)

    async def _handle_trained(self, delivery: Delivery) -> None:
        trained = decode_delivery(AdapterTrained, delivery)
        await self._of_agent(self._promoters, trained.agent_id).register_trained(trained)
        self._api.watcher.publish_training_end(trained)

    async def _handle_report(self, delivery: Delivery) -> None:
        report = decode_delivery(AdapterReport, delivery)
        self._of_agent(self._replicas, report.agent_id).record(report, monotonic())

    def _of_agent(self, table: dict[str, T], agent_id: str) -> T:
        if agent_id not in table:
            raise Reject(f"unknown agent {agent_id!r}: this fleet has {', '.join(table)} (RATCHET_AGENTS)")
        return table[agent_id]

    # --- leader or standby -----------------------------------------------------------------------------------------

    async def _become_leader(self) -> None:
        while not self._leadership.try_lead():
            if not self._standby:
                lock = str(self._leadership.path)
                log.info("standby", "another orchestrator works here; waiting to take over", lock=lock)
            self._standby = True
            await asyncio.sleep(STANDBY_POLL_S)
        self._lease_clock.start("lease", self._renew, self._settings.lease_s / RENEWALS)
        epoch = self._leadership.epoch
        if self._leadership.took_from_living:
            log.warning("took-over", "the other orchestrator hangs; it ends once it goes on", epoch=epoch)
        elif self._standby:
            log.info("took-over", "the other orchestrator is gone; this one takes over", epoch=epoch)
        self._standby = False

    async def _renew(self) -> None:
        """Out of this loop and onto the disk: a leader whose loop or disk stands still gives no sign of life."""
        await asyncio.get_running_loop().run_in_executor(self._renewing, self._leadership.renew)

    def _take_up_registry(self) -> None:
        if self._settings.pool is not None:
            return  # the fleet that decides keeps it in order
        remove_follower_note(self._settings.logs_dir)
        self._store.open()
        remove_leftovers(self._store)

    async def _note_adapters_in_use(self) -> None:
        """Tell the fleet that decides. Raises JournalError, DiskFull."""
        in_use = {agent_id: promoter.in_use for agent_id, promoter in self._promoters.items()}
        note = FollowerNote(self._settings.fleet_number, in_use)
        if note != self._noted:
            await asyncio.to_thread(write_follower_note, self._settings.logs_dir, note)
            self._noted = note

    def _count_open_works(self) -> None:
        for body in self.ledger.index.open_works():
            work = Work.decode(body)
            if promoter := self._promoters.get(work.agent_id):
                promoter.arms.open_work(work)

    # --- its clocks ------------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        self.ledger.index.write_note(DEADLINES, self._deadlines.note())
        for agent_id, samples in self._samples.items():
            if self._settings.adaptive.adapts:
                self.ledger.index.write_note(f"samples/{agent_id}", samples.note())
            metrics.samples_now.labels(agent_id).set(samples.count())
        self._cascades.write_notes()
        self.ledger.commit()

    async def _check_storage(self) -> None:
        try:
            async with asyncio.timeout(STORAGE_TIMEOUT_S):
                await self.ledger.check_storage()
                for keyed_log in self._keyed_logs:
                    await keyed_log.check_storage()
        except TimeoutError:
            folder = self._settings.logs_dir
            raise StorageUnavailable(f"{folder} has not answered for {STORAGE_TIMEOUT_S:.0f} s: see dmesg") from None

    async def _sweep(self) -> None:
        """Settle what was answered in time first, however long it waited."""
        if await self._backlog.is_cleared():
            await self._expire_overdue()
        index = self.ledger.index
        metrics.open_tasks.set(index.count()[1])
        oldest = index.oldest_open_work()
        age = (self._clock() - Work.decode(oldest).admitted_at).total_seconds() if oldest else 0.0
        metrics.oldest_open_task.set(max(0.0, age))

    async def _expire_overdue(self) -> None:
        index, limit = self.ledger.index, SWEEP_AT_ONCE + self._settler.unclosable
        overdue = [entry for numbers, time in self._deadlines.times() for entry in index.overdue(time, limit, numbers)]
        await self._settler.expire_overdue(overdue)
        if self._deadlines.has_stepped:
            self._deadlines.forget_before(index.first_open())
