"""The orchestrator's API put together: its routers, and what they work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from time import monotonic

from fastapi import APIRouter

from ratchet.adapters.registry import RegistryStore
from ratchet.bus.dead_letters.dead_letter_service import DeadLetterService
from ratchet.bus.protocol import Bus
from ratchet.bus.topology import topology_of
from ratchet.experiments.programs import ProgramBook
from ratchet.http.work import Threads
from ratchet.logs.tenants import AgentTenants
from ratchet.runs.api import TrainingRuns, trainings_router
from ratchet.service.settings import pairs
from services.orchestrator.api.adapters import OperatorMoves, adapters_router
from services.orchestrator.api.cascades import cascades_router
from services.orchestrator.api.dead_letters import dead_letters_router
from services.orchestrator.api.events import events_router
from services.orchestrator.api.experiments import evaluations_router, experiments_router
from services.orchestrator.api.fleet import log_router, queues_router, rollouts_router, status_router
from services.orchestrator.api.manager import manager_router
from services.orchestrator.api.programs import programs_router
from services.orchestrator.api.socket import socket_router
from services.orchestrator.cascade.agent_cascade import AgentCascade
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.observation.event_hub import EventHub
from services.orchestrator.observation.experiment_views import ExperimentViews
from services.orchestrator.observation.gauges import QueueSnapshots
from services.orchestrator.observation.overview import Overview
from services.orchestrator.observation.rollouts_now import RolloutsNow
from services.orchestrator.observation.served_quality import ServedQuality
from services.orchestrator.observation.watcher import DecisionBook, Watcher
from services.orchestrator.promotion.arms import ReadRegistry
from services.orchestrator.promotion.promoter import Promoter
from services.orchestrator.promotion.replicas import Replicas
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.tasks.adaptive_samples import AdaptiveSamples


class OrchestratorApi:
    """The routes that only look, and those by which an operator acts.

    Tasks, chat and feedback have their own services.
    """

    def __init__(
        self,
        settings: OrchestratorSettings,
        bus: Bus,
        store: RegistryStore,
        ledger: Ledger,
        promoters: Mapping[str, Promoter],
        replicas: Mapping[str, Replicas],
        samples: Mapping[str, AdaptiveSamples],
        cascades: Mapping[str, AgentCascade],
        trouble: Callable[[], str | None],
        no_copies: Callable[[], str | None],
        read_registry: ReadRegistry,
        threads: Threads,
        clock: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._store = store
        self._cascades = cascades
        self._read_registry = read_registry
        self._threads = threads
        self._book = DecisionBook(store.ledger)
        self._held_up = lambda: {agent: promoter.held_up for agent, promoter in promoters.items()}
        arms = {agent: promoter.arms for agent, promoter in promoters.items()}
        self._experiments = ExperimentViews(arms, settings.pool or settings.logs_dir, threads, monotonic)
        self._queues = QueueSnapshots(bus, topology_of(settings), clock=clock, seconds=monotonic)
        self._dead_letters = DeadLetterService(
            settings.amqp_url.get_secret_value(), settings.namespace, logs_dir=settings.logs_dir
        )
        self._programs = ProgramBook(settings.logs_dir)
        self.hub = EventHub(f"{int(clock().timestamp() * 1000):x}")
        self.rollouts = RolloutsNow(self.hub, monotonic)
        self._runs = TrainingRuns(
            settings.adapters_dir,
            threads,
            lambda: [run for promoter in promoters.values() for run in promoter.training.runs],
        )
        self.watcher = Watcher(self.hub, self._book, promoters, self._queues, self._runs, threads, monotonic)
        self.quality = ServedQuality()
        self.overview = Overview(
            ledger,
            promoters,
            replicas,
            self._queues,
            trouble,
            no_copies,
            self.quality,
            samples,
            cascades,
            audited=bool(settings.auditor),
            has_manager=settings.manager_url is not None,
            shared_learning=settings.shared_learning,
            clock=clock,
            seconds=monotonic,
        )

    def routers(self) -> Sequence[APIRouter]:
        settings, threads = self._settings, self._threads
        tenants = AgentTenants(pairs(settings.agent_tenants))
        moves = OperatorMoves(self._store, settings.agents, settings.adapter_max_rank, self._read_registry, tenants)
        return [
            adapters_router(moves, self._book, threads, self._held_up),
            cascades_router(moves, self._cascades),
            evaluations_router(settings.adapters_dir, settings.agents, tenants, threads),
            experiments_router(self._book, self._experiments, threads),
            programs_router(moves, self._programs, self.rollouts.declared_programs, threads),
            rollouts_router(self.rollouts),
            trainings_router(self._runs),
            queues_router(self._queues, topology_of(settings)),
            dead_letters_router(self._dead_letters, threads),
            log_router(settings.logs_dir, threads),
            manager_router(settings.manager_url),
            status_router(self.overview),
            events_router(self.hub),
            socket_router(self.hub),
        ]

    def close(self) -> None:
        """Let the listeners to events go."""
        self.hub.close()
