"""Faults between the fleet and its broker: a partition, a connection that is cut, a broker that takes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.faults.rig import Rig
from bench.faults.steps import Step

HIGH_WATERMARK = "0.4"


@asynccontextmanager
async def partition(rig: Rig, step: Step) -> AsyncIterator[None]:
    """Nothing passes between the service and the broker; half of the time the connections are gone after it."""
    proxy = rig.proxies[step.service]
    proxy.swallow()
    rig.resume(step.service)
    yield
    if rig.draw.random() < 0.5:
        proxy.cut()
    proxy.pass_on()


@asynccontextmanager
async def cut(rig: Rig, step: Step) -> AsyncIterator[None]:
    """All connections of the service are reset, and again in the middle."""
    rig.proxies[step.service].cut()
    rig.resume(step.service)
    yield
    rig.proxies[step.service].cut()


@asynccontextmanager
async def memory_alarm(rig: Rig, step: Step) -> AsyncIterator[None]:
    """The broker blocks every publisher."""
    await asyncio.to_thread(rig.broker.control, "set_vm_memory_high_watermark", "0.00001")
    rig.resume(step.service)
    yield
    await asyncio.to_thread(rig.broker.control, "set_vm_memory_high_watermark", HIGH_WATERMARK)
