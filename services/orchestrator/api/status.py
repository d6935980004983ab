"""/v1/status: the fleet at a glance."""

from __future__ import annotations

from fastapi import APIRouter

from ratchet.http.problem import problems
from schemas.api.status import Status
from services.orchestrator.observation.overview import Overview


def status_router(overview: Overview) -> APIRouter:
    router = APIRouter(tags=["status"])

    @router.get("/v1/status", responses=problems(503))
    async def status() -> Status:
        """Tasks, stages, scores by version, and how each agent stands."""
        return await overview.status()

    return router
