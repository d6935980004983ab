"""Routes for those who run it: /healthz (the process turns), /readyz (it can do its work), /metrics (Prometheus)."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field

from ratchet.http.operation import ANYONE, operation


class Health(BaseModel):
    service: str
    status: str = "ok"


class Readiness(BaseModel):
    service: str
    ready: bool
    reason: str | None = Field(description="Why it can't do its work now, as a sentence; null if it can.")


def operations_router(name: str, trouble: Callable[[], str | None]) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/healthz")
    @operation(ANYONE)
    async def healthz() -> Health:
        """The process turns."""
        return Health(service=name)

    @router.get("/readyz", responses={503: {"model": Readiness, "description": "It can't do its work now."}})
    @operation(ANYONE)
    async def readyz(response: Response) -> Readiness:
        """It can do its work, or why not."""
        reason = trouble()
        response.status_code = 200 if reason is None else 503
        return Readiness(service=name, ready=reason is None, reason=reason)

    @router.head("/healthz", response_class=Response)
    @operation(ANYONE)
    async def healthz_head() -> Response:
        """Answer as GET does, without a body: for load balancers."""
        return JSONResponse((await healthz()).model_dump())

    @router.head("/readyz", response_class=Response, responses={503: {"description": "It can't do its work now."}})
    @operation(ANYONE)
    async def readyz_head(response: Response) -> Response:
        """Answer as GET does, without a body: for load balancers."""
        said = await readyz(response)
        return JSONResponse(said.model_dump(), response.status_code or 200)

    @router.get("/metrics", response_class=Response, responses={200: {"content": {CONTENT_TYPE_LATEST: {}}}})
    @operation(ANYONE)
    async def metrics() -> Response:
        """Return the metrics for Prometheus."""
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return router
