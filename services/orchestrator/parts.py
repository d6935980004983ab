"""The parts of an orchestrator: which there are, which of them know each other, and who hears of what.

The path of a task is in tasks/, the way of an adapter in promotion/. When the parts begin, and what is done again and
again, is in orchestrator.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from time import monotonic

from ratchet.adapters.registry import RegistryStore
from ratchet.bus.dead_letters.dead_letter_service import DeadLetterService
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
    TASKS,
    topology_of,
)
from ratchet.experiments.programs import ProgramBook
from ratchet.files.append_file import AppendFile
from ratchet.http.work import Threads
from ratchet.logs.leadership import Leadership
from ratchet.logs.names import AUDITS, SEALS, is_own
from ratchet.logs.tenants import AgentTenants
from ratchet.programs.declared import roles_by_agent, untrained_agents
from ratchet.runs.api import TrainingRuns
from ratchet.runtime.runner import Subscription
from ratchet.service.errors import JournalError, RegistryError, Reject
from ratchet.service.settings import broker_user, pairs
from schemas.messages.adapter_event import AdapterReport
from schemas.messages.result import Result
from schemas.messages.training import AdapterTrained
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator.agent_parts import AgentParts
from services.orchestrator.api.chat_service import ChatService
from services.orchestrator.approvals.approval_service import ApprovalLog, ApprovalService
from services.orchestrator.auditing.audits import AuditLog, Audits
from services.orchestrator.auditing.labels import Calibrations, LabelLog
from services.orchestrator.cascade.agent_cascade import AgentCascade
from services.orchestrator.cascade.cascades import Cascades
from services.orchestrator.clocks import now
from services.orchestrator.feedback.feedback_service import FeedbackLog, FeedbackService
from services.orchestrator.ledger.indexed_log import LogSettings
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.ledger.log_retention import LogRetention
from services.orchestrator.observation.event_hub import EventHub
from services.orchestrator.observation.experiment_views import ExperimentViews
from services.orchestrator.observation.gauges import DiskGauges, QueueGauges, QueueSnapshots
from services.orchestrator.observation.overview import Overview
from services.orchestrator.observation.rollouts_now import RolloutsNow
from services.orchestrator.observation.served_quality import ServedQuality
from services.orchestrator.observation.watcher import DecisionBook, Watcher
from services.orchestrator.promotion.anchors import Anchors
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.promotion.evidence_pool import EvidencePool
from services.orchestrator.promotion.gate import Gate
from services.orchestrator.promotion.own_tasks import OwnTasks
from services.orchestrator.promotion.promoter import Promoter
from services.orchestrator.promotion.replicas import Announcer, Replicas
from services.orchestrator.promotion.shadow_gate import ShadowGate
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.tasks.adaptive_samples import AdaptiveSamples
from services.orchestrator.tasks.admission import AdmissionPolicy
from services.orchestrator.tasks.deadline_clock import DeadlineClock
from services.orchestrator.tasks.intake import Intake
from services.orchestrator.tasks.kept_responses import Completion, KeptResponses
from services.orchestrator.tasks.result_sender import ResultSender, Senders
from services.orchestrator.tasks.reward_backlog import RewardBacklog, RewardBroadcaster
from services.orchestrator.tasks.settler import Settler
from services.orchestrator.tasks.task_service import ResultWaiters, TaskService
from services.orchestrator.training.scheduler import TrainingScheduler
from services.orchestrator.training.trigger import TrainingPolicy


class Parts:
    """Made once. Nothing is read or begun here."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        bus: Bus,
        leadership: Leadership,
        trouble: Callable[[], str | None],
        *,
        clock: Callable[[], datetime],
        seconds: Callable[[], float],
        file_type: type[AppendFile],
        pace: float,
    ) -> None:
        """The arguments are those of Orchestrator."""
        self.settings = settings
        seals = settings.adapters_dir / SEALS / (str(settings.fleet) if settings.fleet else "")
        given: LogSettings = {
            "segment_bytes": settings.segment_bytes,
            "index_dir": settings.index_folder,
            "fence": leadership,
        }
        sealed: LogSettings = {**given, "seals": seals}
        of_tasks: LogSettings = {**sealed, "file_type": file_type, "seconds": seconds}
        self.ledger = Ledger(settings.logs_dir, **of_tasks)
        feedback_log = FeedbackLog(settings.logs_dir, **sealed)
        audit_log = AuditLog(settings.logs_dir, **given)
        label_log = LabelLog(settings.logs_dir, **given)
        approval_log = ApprovalLog(settings.logs_dir, **given)
        self.keyed_logs = (feedback_log, audit_log, label_log, approval_log)
        self.retention = LogRetention(
            self.ledger,
            self.keyed_logs,
            settings,
            clock=now,
            fence=leadership,
            first_pending=lambda: self.settler.first_pending,
        )
        self.store = RegistryStore.from_settings(settings, leadership.check)
        self.threads = Threads("orchestrator")
        self.objectives = settings.objectives
        self.tenants = AgentTenants(pairs(settings.agent_tenants), settings.shared_learning)
        self.agents: dict[str, AgentParts] = {}
        arms = _arms_of(settings)

        # the path of a task
        self.deadlines = DeadlineClock(clock, seconds, lambda: self.ledger.sequence)
        self.backlog = RewardBacklog(bus, seconds)
        self.own_tasks = OwnTasks()
        self.news = RewardBroadcaster(bus)
        self.waits = ResultWaiters()
        self.kept = KeptResponses(self.ledger, external_scorer=settings.external_scorer, pace=pace)
        self.completion = Completion(bus, self.ledger)
        results = ResultSender(bus, self.ledger)
        senders = Senders(
            settings.tenants,
            settings.namespace,
            is_required=settings.require_tenant,
            own_user=broker_user(settings.amqp_url.get_secret_value()),
        )
        policy = AdmissionPolicy(
            settings.agents,
            settings.sampling,
            timedelta(seconds=settings.task_deadline_s),
            timedelta(seconds=settings.longest_deadline_s),
            settings.max_logged_bytes,
            settings.judge_selects,
            self.tenants,
            has_manager=settings.manager_url is not None,
        )
        self.intake = Intake(
            bus,
            self.ledger,
            results,
            policy,
            arms,
            max_message_bytes=settings.max_message_bytes,
            clock=self.deadlines.now,
            read_registry=self.read_registry,
            samples=lambda agent_id: self.agents[agent_id].samples.draw(),
            senders=senders,
        )
        self.calibrations = Calibrations(self.ledger, label_log, audit_log, settings.agents, self.threads, clock=clock)
        self.audits = Audits(
            bus,
            self.ledger,
            audit_log,
            arms,
            settings,
            on_logged=self.calibrations.add_verdict,
            clock=clock,
            seconds=seconds,
        )
        of_agents = {
            agent: AgentCascade(
                arms[agent], arms[big], settings, self.store, self.ledger, audit_log, self.read_registry, clock
            )
            for agent, big in pairs(settings.cascade).items()
        }
        self.cascades = Cascades(of_agents, self.ledger, self.audits, self.intake, lambda: self.settler, clock)
        self.intake.admitted, self.audits.on_pair = self.cascades.note_admitted, self.cascades.note_verdict
        self.settler = Settler(
            self.ledger,
            results,
            self._note_closed,
            clock=clock,
            max_logged_bytes=settings.max_logged_bytes,
            agents=settings.agents,
            kept=self.kept,
            second_verdict=self.audits.take,
            router=self.cascades,
        )
        self.tasks = TaskService(bus, self.intake, self.settler, self.ledger, self.waits)
        self.chat = ChatService(
            self.tasks,
            self.ledger,
            arms,
            threads=self.threads,
            names=pairs(settings.chat_models),
            read_registry=self.read_registry,
            group_size=settings.adaptive.floor,
            clock=now,
            tenants=self.tenants,
        )
        self.feedback = FeedbackService(self.ledger, feedback_log, senders)

        # its agents
        self.hub = EventHub(f"{int(now().timestamp() * 1000):x}")
        self.rollouts = RolloutsNow(self.hub, monotonic)
        self.approvals = ApprovalService(bus, self.ledger, approval_log, self.hub)
        for name, one in arms.items():
            promoter = self._promoter(one, bus, lambda: audit_log.end)
            anchors = Anchors(
                settings.adapters_dir, self.intake.rescore, self.own_tasks, promoter, settings.anchor_tolerance
            )
            self.agents[name] = AgentParts(promoter, anchors, AdaptiveSamples(one, settings.adaptive))
        self.promoters = {name: agent.promoter for name, agent in self.agents.items()}
        self.pool = EvidencePool(settings, self.promoters, leadership)

        # what people and Prometheus look at
        topology = topology_of(settings)
        self.book = DecisionBook(self.store.ledger)
        self.programs = ProgramBook(settings.logs_dir)
        self.experiments = ExperimentViews(arms, settings.pool or settings.logs_dir, self.threads)
        self.queues = QueueSnapshots(bus, topology)
        self.dead_letters = DeadLetterService(
            settings.amqp_url.get_secret_value(), settings.namespace, logs_dir=settings.logs_dir
        )
        self.runs = TrainingRuns(
            settings.adapters_dir,
            self.threads,
            lambda: [run for promoter in self.promoters.values() for run in promoter.training.runs],
        )
        self.watcher = Watcher(self.hub, self.book, self.promoters, self.queues, self.runs, self.threads)
        self.quality = ServedQuality()
        self.overview = Overview(
            settings,
            self.ledger,
            self.agents,
            self.cascades.agents,
            self.queues,
            self.quality,
            trouble,
            self.kept.trouble,
        )
        self.queue_gauges = QueueGauges(bus, topology, settings.namespace)
        self.disk_gauges = DiskGauges({"logs": settings.logs_dir, "adapters": settings.adapters_dir})

    def _promoter(self, arms: Arms, bus: Bus, audits_end: Callable[[], int]) -> Promoter:
        settings, first, announcer, replicas = self.settings, arms.first.agent_id, Announcer(arms, bus, now), Replicas()
        shadow = ShadowGate(
            arms,
            self.intake.ask,
            self.own_tasks,
            settings,
            self.ledger.logged_task,
            first_tasks=lambda: self.agents[first].anchors.tasks,
            revision=lambda: announcer.revision,
            clock=now,
            seconds=monotonic,
        )
        gate = Gate(
            arms,
            announcer,
            replicas,
            bus,
            shadow,
            settings,
            programs_answer=lambda: bool(self.rollouts.declared_programs(first)),
            seconds=monotonic,
        )
        is_trained = arms.agent_id not in untrained_agents(settings.programs, settings.agents)
        policy = settings.training if is_trained else TrainingPolicy(0, 0.0)
        return Promoter(
            arms,
            announcer,
            replicas,
            gate,
            TrainingScheduler(arms.agent_id, bus, self.ledger, policy, now, self.deadlines.even),
            self.store,
            self.ledger,
            settings,
            lambda: self.ledger.positions() | {AUDITS: audits_end()} | self.pool.positions,
            lambda: self.rollouts.declared_programs(arms.agent_id),
        )

    async def read_registry(self, agent_id: str) -> None:
        """Has the agent's tasks, and what is told of it, go by the registry as it is now; where that fails, the next
        turn tells."""
        if (promoter := self.promoters.get(agent_id)) is not None:  # the registry may know others' agents
            with suppress(RegistryError, JournalError, OSError):
                await promoter.read_registry()

    def subscriptions(self) -> Sequence[Subscription]:
        settings, prefetch = self.settings, self.settings.orchestrator_prefetch
        found = [
            Subscription(REWARDS, self.backlog.count_rewards(self.settler.handle), prefetch),
            Subscription(TASKS, self.intake.handle, prefetch),
            Subscription(DRAFT_RESPONSES, self.completion.handle, prefetch),
            Subscription(FEEDBACK, self.feedback.handle, prefetch),
            Subscription(ADAPTERS, self._handle_trained, 1),
            Subscription(ADAPTER_REPORTS, self._handle_report, prefetch),
        ]
        if settings.external_scorer:
            found.append(Subscription(KEPT_RESPONSES, self.kept.handle, prefetch))
        if settings.has_runner:
            found.append(Subscription(APPROVALS, self.approvals.handle, prefetch))
        if settings.auditor:
            found.append(Subscription(AUDIT_SCORES, self.audits.handle, prefetch))
        return found

    def _note_closed(self, work: Work, lines: list[Interaction], result: Result) -> None:
        self.own_tasks.resolve(work.task_id, lines)
        if not is_own(work.arm.experiment_id):
            self.objectives.count(work.agent_id, result.status, lines[0].latencies.total_s)
        self.news.add(work.agent_id, lines)
        self.waits.resolve(work.task_id, None)
        self.watcher.publish_settled(work, lines, result)
        self.quality.add_closed_task(lines)
        if agent := self.agents.get(work.agent_id):
            agent.samples.observe(work, lines)
            agent.promoter.note_closed(work, lines)
            arms = agent.promoter.arms
            for mate in arms.mates if arms.team else ():
                self.promoters[mate.agent_id].training.note_closed(lines)
            agent.anchors.take_closed(lines, work)
            self.audits.consider(work, lines)
        self.cascades.note_closed(work, lines)

    async def _handle_trained(self, delivery: Delivery) -> None:
        trained = decode_delivery(AdapterTrained, delivery)
        await self._promoter_of(trained.agent_id).register_trained(trained)
        self.watcher.publish_training_end(trained)

    async def _handle_report(self, delivery: Delivery) -> None:
        report = decode_delivery(AdapterReport, delivery)
        self._promoter_of(report.agent_id).replicas.record(report, monotonic())

    def _promoter_of(self, agent_id: str) -> Promoter:
        if agent_id not in self.promoters:
            raise Reject(f"unknown agent {agent_id!r}: this fleet has {', '.join(self.promoters)} (RATCHET_AGENTS)")
        return self.promoters[agent_id]


def _arms_of(settings: OrchestratorSettings) -> dict[str, Arms]:
    arms = {agent: Arms(agent, settings.fleet) for agent in settings.agents}
    for agent, roles in roles_by_agent(settings.programs, settings.agents).items():
        arms[agent].lead({role: arms[played_by] for role, played_by in roles.items()})
    return arms
