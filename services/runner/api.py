"""The runner's route: what runs now."""

from __future__ import annotations

from typing import Protocol

from fastapi import APIRouter

from schemas.api.rollouts import RunningRollouts


class Running(Protocol):
    """What the route asks of the worker."""

    def running(self) -> RunningRollouts: ...


def runner_router(runner: Running) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["runner"])

    @router.get("/rollouts")
    async def rollouts() -> RunningRollouts:
        """The rollouts that run on this machine now, with what each has taken so far."""
        return runner.running()

    return router
