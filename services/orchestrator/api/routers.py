"""The routes of the orchestrator, with the parts that they ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import APIRouter

from ratchet.bus.topology import topology_of
from ratchet.runs.api import trainings_router
from schemas.api.status import HeldUp
from services.orchestrator.api.adapters import OperatorMoves, adapters_router
from services.orchestrator.api.cascades import cascades_router
from services.orchestrator.api.chat import chat_router
from services.orchestrator.api.dead_letters import dead_letters_router
from services.orchestrator.api.dialects import dialects_router
from services.orchestrator.api.events import events_router, socket_router
from services.orchestrator.api.experiments import evaluations_router, experiments_router
from services.orchestrator.api.feedback import agreement_router, approvals_router, feedback_router
from services.orchestrator.api.fleet import log_router, queues_router, rollouts_router, status_router
from services.orchestrator.api.manager import manager_router
from services.orchestrator.api.page import page_router
from services.orchestrator.api.programs import programs_router
from services.orchestrator.api.tasks import tasks_router
from services.orchestrator.parts import Parts


def routers_of(parts: Parts) -> Sequence[APIRouter]:
    settings, threads, tenants = parts.settings, parts.threads, parts.tenants
    moves = OperatorMoves(parts.store, settings.agents, settings.adapter_max_rank, parts.read_registry, tenants)

    def held_up() -> Mapping[str, Sequence[HeldUp]]:
        return {name: promoter.held_up for name, promoter in parts.promoters.items()}

    return [
        page_router(),
        tasks_router(parts.tasks, parts.ledger, parts.feedback.of_task, threads),
        chat_router(parts.chat),
        dialects_router(parts.chat),
        feedback_router(parts.feedback),
        agreement_router(parts.calibrations),
        approvals_router(parts.approvals),
        adapters_router(moves, parts.book, threads, held_up),
        cascades_router(moves, parts.cascades.agents),
        evaluations_router(settings.adapters_dir, settings.agents, tenants, threads),
        experiments_router(parts.book, parts.experiments, threads),
        programs_router(moves, parts.programs, parts.rollouts.declared_programs, threads),
        rollouts_router(parts.rollouts),
        trainings_router(parts.runs),
        queues_router(parts.queues, topology_of(settings)),
        dead_letters_router(parts.dead_letters, threads),
        log_router(settings.logs_dir, threads),
        manager_router(settings.manager_url),
        status_router(parts.overview),
        events_router(parts.hub),
        socket_router(parts.hub),
    ]
