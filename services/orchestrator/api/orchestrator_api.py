"""The orchestrator's API put together: its routers, and what they work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from time import monotonic

from fastapi import APIRouter

from services.adapters.registry import RegistryStore
from services.api.threads import Threads
from services.bus import Bus
from services.dead_letters.office import DeadLetterOffice
from services.orchestrator.api.adapters import adapters_router
from services.orchestrator.api.dead_letters import dead_letters_router
from services.orchestrator.api.experiments import experiments_router
from services.orchestrator.api.log import log_router
from services.orchestrator.api.queues import queues_router
from services.orchestrator.arms import Arms
from services.orchestrator.decision_book import DecisionBook
from services.orchestrator.experiment_looks import ExperimentLooks
from services.orchestrator.queue_look import QueueLooks
from services.orchestrator.settings import OrchestratorSettings


class OrchestratorApi:
    """What only looks, and what an operator does by hand. Tasks, chat and feedback come with their own desks."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        bus: Bus,
        store: RegistryStore,
        arms: Mapping[str, Arms],
        threads: Threads,
        clock: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._store = store
        self._threads = threads
        self._book = DecisionBook(store.ledger)
        self._looks = ExperimentLooks(arms, settings.logs_dir, threads, monotonic)
        self._queues = QueueLooks(bus, settings.topology, clock=clock, seconds=monotonic)
        self._office = DeadLetterOffice(settings.amqp_url.get_secret_value(), settings.namespace)

    def routers(self) -> Sequence[APIRouter]:
        settings, threads = self._settings, self._threads
        return [
            adapters_router(self._store, self._book, settings.agents, settings.adapter_max_rank, threads),
            experiments_router(self._book, self._looks, threads),
            queues_router(self._queues, settings.topology),
            dead_letters_router(self._office, threads),
            log_router(settings.logs_dir, threads),
        ]
