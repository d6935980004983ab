"""The least a handler can do that takes a task over HTTP: FastAPI, the same schema, one confirmed publish.

It keeps nothing, knows no ids, asks for no access. `python -m bench.api.bare <port> <amqp url> <namespace>`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.protocol import derived_id
from ratchet.bus.topology import TASKS, fleet_topology
from schemas import Task


def application(bus: RabbitBus) -> FastAPI:
    @asynccontextmanager
    async def open_bus(_: FastAPI) -> AsyncIterator[None]:
        await bus.start()
        yield
        await bus.stop(5.0)

    app = FastAPI(lifespan=open_bus)

    @app.post("/v1/tasks", status_code=202)
    async def submit(task: Task) -> dict[str, str]:
        await bus.publish(TASKS, task.encode(), type=Task.TYPE, message_id=derived_id(task.task_id, "task"))
        return {"task_id": task.task_id, "state": "open", "location": f"/v1/tasks/{task.task_id}"}

    @app.get("/readyz")
    async def readyz() -> dict[str, bool]:
        return {"ready": True}

    return app


if __name__ == "__main__":
    port, url, namespace = sys.argv[1:]
    app = application(RabbitBus(url, fleet_topology(("small",)), name="bare", namespace=namespace))
    uvicorn.run(app, port=int(port), http="h11", ws="none", loop="uvloop", access_log=False, log_level="warning")
