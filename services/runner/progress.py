"""Tells the fleet what this runner's rollouts are at: all of it, once a second while anything runs or has just ended,
and every few seconds which programs it has.

For whoever listens just then. Nothing waits for it, and a broker that is away costs nothing but the news.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import APIRouter

from ratchet.bus.protocol import Bus
from ratchet.bus.topology import ROLLOUTS_TOPIC
from ratchet.http.operation import OPERATOR, VIEWER, operation
from ratchet.service.errors import BusError
from schemas.api.programs import RunningRollouts
from schemas.messages.base import Metadata
from schemas.messages.runner_rollouts import DeclaredProgram, RolloutProgress, RunnerRollouts

TELL_EVERY_S = 1.0
PROGRAMS_EVERY_S = 4.0
"""The pace of reports, an idle runner's too; well within the time after which a runner counts as gone."""
REPEATED_S = 30.0
"""The end of a rollout is reported for so long."""
KEPT = 128
"""Ends that are remembered."""


def runner_router(running: Callable[[], RunningRollouts]) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["runner"])

    @router.get("/rollouts")
    @operation(VIEWER, OPERATOR, title="List a runner's rollouts", tool="running_rollouts")
    async def rollouts() -> RunningRollouts:
        """List this runner's rollouts that run now, with their calls of the model and tokens so far and the seconds
        that are left; how the newest that ended did, and why; and how many wait for their turn.
        """
        return running()

    return router


@dataclass(eq=False)
class Progress:
    """`state`: those that run, how many wait, and how many may run at once. `programs`: those it has;
    asked in a thread.
    """

    bus: Bus
    runner: str
    state: Callable[[], tuple[Sequence[RolloutProgress], int, int]]
    seconds: Callable[[], float] = time.monotonic
    programs: Callable[[], tuple[DeclaredProgram, ...]] | None = None

    def __post_init__(self) -> None:
        self._ended: deque[tuple[float, RolloutProgress]] = deque(maxlen=KEPT)
        self._numbers = itertools.count()
        self._silent = True
        self._programs_at = float("-inf")
        self._telling: asyncio.Task[None] | None = None

    @property
    def ended(self) -> list[RolloutProgress]:
        """The newest, the oldest first."""
        return [one for _, one in self._ended]

    def note(self, ended: RolloutProgress) -> None:
        self._ended.append((self.seconds(), ended))

    def start(self) -> None:
        self._telling = asyncio.create_task(self._keep_telling())

    async def stop(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)

    async def tell(self) -> None:
        """Says what there is to say; once nothing runs any more, that too, and then no more. Raises BusError."""
        running, waiting, at_once = self.state()
        since = self.seconds() - REPEATED_S
        items = (*(one for at, one in self._ended if at >= since), *running)
        due = self.programs is not None and self.seconds() - self._programs_at >= PROGRAMS_EVERY_S
        if self._silent and not items and not waiting and not due:
            return
        programs = await asyncio.to_thread(self.programs) if due and self.programs is not None else None
        message = RunnerRollouts(
            runner=self.runner,
            metadata=Metadata(timestamp=datetime.now(UTC), source="runner"),
            at_once=at_once,
            waiting=waiting,
            items=items,
            programs=programs,
        )
        message_id = f"{self.runner}/rollouts/{next(self._numbers)}"
        await self.bus.broadcast(ROLLOUTS_TOPIC, message.encode(), type=RunnerRollouts.TYPE, message_id=message_id)
        self._silent = not items and not waiting
        if programs is not None:
            self._programs_at = self.seconds()

    async def _keep_telling(self) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            with suppress(BusError):
                await self.tell()
