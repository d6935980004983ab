"""A manager without a fleet: its database in a file, and a client whose answers the test gives.

Training runs that it asks for are in `runs`; a test plays their trainer by the folder of adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import httpx

from ratchet.http.server.application import application
from schemas.messages.result import Result
from schemas.messages.task import Task
from schemas.messages.training import TrainRequest
from services.manager.database import Database
from services.manager.settings import ManagerSettings
from services.manager.worker import ManagerWorker
from tests.waiting import until


class ScriptedFleet:
    """Stands in for AsyncFleet: what was submitted is in `open`, and `answer` gives a Result."""

    def __init__(self) -> None:
        self.open: dict[str, Task] = {}
        self.submitted: list[str] = []
        self.runs: dict[str, TrainRequest] = {}
        self._came: asyncio.Queue[Result] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def submit_all(self, tasks: Iterable[Task]) -> int:
        for task in tasks:
            self.open[task.task_id] = task
            self.submitted.append(task.task_id)
        return len(self.open)

    async def train(self, request: TrainRequest) -> None:
        self.runs[request.request_id] = request

    async def listen(self, seconds: float) -> list[Result]:
        try:
            async with asyncio.timeout(seconds):
                return [await self._came.get()]
        except TimeoutError:
            return []

    def answer(self, task_id: str, **fields: Any) -> None:
        self.open.pop(task_id, None)
        self._came.put_nowait(Result(**{"task_id": task_id, "response": "abc", **fields}))


class Managed:
    """A manager at work, its API, and the fleet that it speaks to."""

    def __init__(self, worker: ManagerWorker, app: Any, api: httpx.AsyncClient, fleet: ScriptedFleet) -> None:
        self.worker, self.app, self.api, self.fleet = worker, app, api, fleet

    async def submit(self, count: int = 3, **fields: Any) -> dict[str, Any]:
        body = {"tasks": [{"input": f"sort: {n}"} for n in range(count)], **fields}
        return await self.post("/v1/jobs", json=body)

    async def post(self, path: str, status: int = 200, **request: Any) -> Any:
        answer = await self.api.post(path, **request)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def get(self, path: str, status: int = 200, **request: Any) -> Any:
        answer = await self.api.get(path, **request)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def released(self, count: int) -> list[str]:
        """Wait until the fleet has so many tasks; return their ids."""
        await until(lambda: len(self.fleet.open) >= count, f"{count} open tasks")
        return list(self.fleet.open)

    async def wait_for(self, job_id: str, **wanted: Any) -> dict[str, Any]:
        """Wait until the job has these fields; return it."""

        async def reached() -> dict[str, Any] | None:
            job: dict[str, Any] = await self.get(f"/v1/jobs/{job_id}")
            return job if all(job[name] == value for name, value in wanted.items()) else None

        found: dict[str, Any] = await until(reached, f"job {job_id} with {wanted}")
        return found


@asynccontextmanager
async def managed(folder: Path, fleet: ScriptedFleet | None = None, **settings: Any) -> AsyncIterator[Managed]:
    fleet = fleet or ScriptedFleet()
    given = {
        "manager_db": f"sqlite:///{folder}/jobs.sqlite",
        "api_audit_dir": folder / "audit",
        "adapters_dir": folder / "adapters",
        "agents": ("small", "coder"),
        "api_requests_per_s": 0,
        **settings,
    }
    read = ManagerSettings.read(**given)
    worker = ManagerWorker(read, Database(read.manager_db.get_secret_value()), lambda: fleet)  # type: ignore[arg-type, return-value]
    app = application("manager", worker.routers(), read, worker.trouble)
    await worker.start()
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as api:
            yield Managed(worker, app, api, fleet)
    finally:
        await worker.stop()
