"""A link over HTTP: a task is posted, and posted again with a wait until its Result comes, for it is run only once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import httpx

from ratchet.client.fleet import PAUSE_S, RECONNECT_S, AsyncFleet, Sent
from ratchet.service.errors import BusError, FleetError
from schemas.messages.feedback import Feedback
from schemas.messages.result import Result
from schemas.messages.task import Task

WAIT_S, TIMEOUT_S = 30, 60.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Never reached through the proxy that the environment may name."""


class HttpLink:
    """`token`: of the API, where it asks for one."""

    def __init__(self, url: str, token: str | None, fleet: AsyncFleet) -> None:
        self._url, self._fleet = url, fleet
        self._lost_at: float | None = float("-inf")  # as if lost for long: one that was never there is not waited for
        self._waiting: set[asyncio.Task[None]] = set()
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {}),
            timeout=httpx.Timeout(TIMEOUT_S, connect=10.0, pool=None),
            limits=httpx.Limits(max_connections=None),
            trust_env=httpx.URL(url).host not in LOOPBACK,
        )

    async def send(self, message: Sent) -> None:
        """Return once the fleet has it."""
        if isinstance(message, Feedback):
            answer = await self._post("/v1/feedback", message.encode())
            if answer.is_error:
                raise FleetError(f"the fleet refused feedback on {message.task_id}: {_detail(answer)}")
        elif not isinstance(message, Task):
            raise FleetError("trainings are asked for over AMQP, or of the trainer's own API (POST /v1/trainings)")
        elif not await self._is_answered(message, 0) and self._fleet.replies:
            waiting = asyncio.create_task(self._wait(message))
            self._waiting.add(waiting)
            waiting.add_done_callback(self._waiting.discard)
            waiting.add_done_callback(self._fleet.on_sent)

    async def close(self) -> None:
        for waiting in self._waiting:
            waiting.cancel()
        await self._client.aclose()

    async def _wait(self, task: Task) -> None:
        while not await self._is_answered(task, WAIT_S):
            pass

    async def _is_answered(self, task: Task, wait_s: int) -> bool:
        """Tell whether its Result came within the wait. A task that is refused has one that says why."""
        answer = await self._post("/v1/tasks", task.encode(), wait_s=wait_s)
        if answer.is_error:
            self._fleet.receive(Result(task_id=task.task_id, status="failed", reason=_detail(answer)).encode())
        elif answer.status_code == httpx.codes.OK:
            self._fleet.receive(answer.content)
        return answer.status_code != httpx.codes.ACCEPTED

    async def _post(self, path: str, body: bytes, **query: Any) -> httpx.Response:
        """Ask until another try would not change the answer. Raises BusError, FleetError."""
        loop = asyncio.get_running_loop()
        while True:
            pause_s = PAUSE_S
            try:
                answer = await self._client.post(path, content=body, params=query)
            except httpx.TransportError as error:
                self._lost_at = self._lost_at or loop.time()
                if loop.time() - self._lost_at > RECONNECT_S:
                    raise BusError(f"nobody answers at {self._url} ({error!r}): is the fleet up? ratchet up") from None
            else:
                self._lost_at = None
                if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
                    raise FleetError(f"{self._url} does not let this token do that: {_detail(answer)}")
                if answer.status_code not in (408, 429) and not answer.is_server_error:  # those may succeed later
                    return answer
                given = answer.headers.get("Retry-After", "")
                pause_s = max(pause_s, float(given) if given.isdecimal() else 0.0)
            await asyncio.sleep(pause_s)


def _detail(answer: httpx.Response) -> str:
    """Return the sentence of a problem document."""
    with suppress(ValueError, KeyError, TypeError):
        return str(answer.json()["detail"])
    return f"HTTP {answer.status_code}"
