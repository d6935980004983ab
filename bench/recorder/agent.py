"""A fleet's agent in front of the engine, with its internal route: `python -m bench.recorder.agent URL FOLDER`.

No broker: what comes by queues is none of the recorder's. It writes where it listens.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

import uvloop

from bench.recorder.script import MODEL
from ratchet.bus.topology import fleet_topology
from ratchet.http.server.application import application
from ratchet.openai.client import http_client
from ratchet.runtime.runner import HeaderTimeoutProtocol
from services.agent.engines.vllm_engine import VllmEngine
from services.agent.settings import AgentSettings
from services.agent.worker import AgentWorker
from tests.memory_bus import MemoryBus
from tests.serving import serving


async def serve(url: str, folder: Path) -> None:
    settings = AgentSettings(adapters_dir=folder / "adapters", logs_dir=folder / "logs")
    bus = MemoryBus(fleet_topology((settings.agent_id,)))
    await bus.start()
    worker = AgentWorker(settings, bus, VllmEngine(http_client(url, None, streams=True), model=MODEL))
    await worker.start()
    app = application("agent", worker.routers(), settings, worker.trouble)
    async with serving(app, http=HeaderTimeoutProtocol) as base_url:
        print(json.dumps({"url": base_url}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    uvloop.run(serve(sys.argv[1], Path(sys.argv[2])))
