"""A service as a process of its own whose handler never returns: it waits, holds a thread, or blocks the event loop."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from fastapi import APIRouter

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import TASKS, fleet_topology
from ratchet.runtime.runner import Subscription, Wired, run
from ratchet.service.settings import FleetSettings
from tests.memory_bus import MemoryBus

NEVER_S = 3_600.0


class Hanging:
    name = "agent"

    def __init__(self, bus: MemoryBus, how: str) -> None:
        self._bus = bus
        self._how = how

    def routers(self) -> Sequence[APIRouter]:
        return []

    async def start(self) -> None:
        await self._bus.publish(TASKS, b"{}", type="task.v1", message_id="one")

    def subscriptions(self) -> Sequence[Subscription]:
        return [Subscription(TASKS, self.handle, 1, stalled_after_s=0.2)]

    async def handle(self, delivery: Delivery) -> None:
        match self._how:
            case "waits":
                await asyncio.Event().wait()
            case "holds-a-thread":
                await asyncio.to_thread(threading.Event().wait, NEVER_S)
            case _:
                time.sleep(NEVER_S)  # noqa: ASYNC251 - real time: that is the fault

    def trouble(self) -> str | None:
        return None

    async def stop(self) -> None:
        pass


def wire() -> Wired:
    settings = FleetSettings(logs_dir=Path(tempfile.mkdtemp()), restart_stalled_s=3.0, drain_grace_s=0.1)
    bus = MemoryBus(fleet_topology(("small",)))
    return Wired(Hanging(bus, sys.argv[1]), bus, settings, 0)


if __name__ == "__main__":
    run(Hanging.name, wire)
