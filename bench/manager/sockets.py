"""The time from an event's moment in the orchestrator to its receipt, at many WebSockets at once."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from datetime import datetime
from typing import Any

from websockets.asyncio.client import connect

from bench.manager.fleet import House
from tests.acceptance.fleet import ORCHESTRATOR


async def delays(house: House, count: int, seconds: float) -> dict[str, Any]:
    """Have one task after the other answered, and measure at each socket the delay of `task.settled` after its time,
    and of `agent` after its first receipt."""
    url = f"ws://127.0.0.1:{house.members[ORCHESTRATOR].port}/v1/ws"
    settled: list[float] = []
    spread: list[float] = []
    first: dict[str, float] = {}
    sizes, until = Counter[str](), time.time() + seconds

    async def listen() -> None:
        async with connect(url, subprotocols=["ratchet.v1"], open_timeout=120, max_queue=None) as socket:  # type: ignore[list-item]
            await socket.send(json.dumps({"kinds": "task.settled,agent"}))
            async for text in socket:
                now, event = time.time(), json.loads(text)
                sizes[event["event"]] += 1
                if event["event"] == "task.settled":
                    settled.append(now - datetime.fromisoformat(event["data"]["at"]).timestamp())
                else:
                    spread.append(now - first.setdefault(event["id"], now))

    sockets = [asyncio.create_task(listen()) for _ in range(count)]
    try:
        await asyncio.sleep(20)  # real time: until all are connected
        settled.clear()
        until = time.time() + seconds
        number = 0
        while time.time() < until:
            number += 1
            await asyncio.to_thread(house.submit, f"one-{number}", 1)
            await asyncio.sleep(1.0)  # real time: one task a second
    finally:
        for one in sockets:
            one.cancel()
        ended = await asyncio.gather(*sockets, return_exceptions=True)
    lost = [repr(one) for one in ended if not isinstance(one, asyncio.CancelledError)]
    p99 = {
        name: round(1000 * sorted(took)[int(0.99 * len(took))])
        for name, took in (("settled", settled), ("agent", spread))
    }
    return {"sockets": count, "tasks": number, "frames": dict(sizes), "p99_ms": p99, "closed": lost[:3]}
