"""The runner's route: what runs now."""

from __future__ import annotations

from typing import Protocol

from fastapi import APIRouter

from ratchet.http.operation import OPERATOR, VIEWER, operation
from schemas.api.programs import RunningRollouts


class Running(Protocol):
    """The part of the worker that the route asks."""

    def running(self) -> RunningRollouts: ...


def runner_router(runner: Running) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["runner"])

    @router.get("/rollouts")
    @operation(VIEWER, OPERATOR, title="List a runner's rollouts", tool="running_rollouts")
    async def rollouts() -> RunningRollouts:
        """List this runner's rollouts that run now, with their calls of the model and tokens so far and the seconds
        that are left; how the newest that ended did, and why; and how many wait for their turn.
        """
        return runner.running()

    return router
