"""Keeps one connection to the broker open: connects, prepares it, waits for its loss, pauses, connects again.

Leaves out what travels on it: `prepare` is called with each new connection, `lost` when it is gone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pika.connection import Parameters
from pika.exceptions import AMQPError

from ratchet.bus.amqp.connection import AmqpConnection, open_connection
from ratchet.bus.amqp.declaration import TopologyConflict
from ratchet.bus.retry_policy import pause_s
from ratchet.concurrency.keyed import cancelled_by_us
from ratchet.service.errors import BusError
from ratchet.service.telemetry import Log

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
STEADY_S = 10.0
"""A connection that held this long makes the next pause short again."""
CLOSE_TIMEOUT_S = 3.0

_log = Log(__name__)


class Link:
    """`connection` is the open and prepared one, or None."""

    def __init__(
        self,
        parameters: Parameters,
        purpose: str,
        prepare: Callable[[AmqpConnection], Awaitable[None]],
        blocked: Callable[[], None] = lambda: None,
    ) -> None:
        self._parameters = parameters
        self._purpose = purpose
        self._prepare = prepare
        self._on_blocked_change = blocked
        self._up = asyncio.Event()
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._down_since = time.monotonic()
        self._reason = "not connected yet"
        self.connection: AmqpConnection | None = None
        self.blocked: str | None = None

    async def start(self) -> None:
        """Returns when connected and prepared. Raises TopologyConflict; waits out everything else."""
        self._task = asyncio.create_task(self._keep_open())
        await self._first

    async def wait_open(self) -> AmqpConnection:
        while self.connection is None:
            await self._up.wait()
        return self.connection

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._task is not None and not self._first.done():
            self._first.set_exception(BusError("stopped before the broker could be reached"))
        connection, self.connection = self.connection, None
        if connection is not None and connection.is_open:
            connection.close()
            await asyncio.wait((connection.closed,), timeout=CLOSE_TIMEOUT_S)
            connection.abort(ConnectionAbortedError("the broker did not answer the close"))

    def trouble(self) -> str | None:
        if self.connection is None:
            where = f"{self._parameters.host}:{self._parameters.port}"
            for_s = time.monotonic() - self._down_since
            return f"no connection to the broker at {where} for {self._purpose} since {for_s:.0f} s: {self._reason}"
        if self.blocked is not None:
            return f"the broker takes no messages now (alarm: {self.blocked})"
        return None

    async def _keep_open(self) -> None:
        failures = 0
        while True:
            connected_at = time.monotonic()
            await self._hold_one_connection()
            failures = 1 if time.monotonic() - connected_at > STEADY_S else failures + 1
            await asyncio.sleep(pause_s(failures, first_s=FIRST_PAUSE_S, cap_s=LONGEST_PAUSE_S, random=random.random()))

    async def _hold_one_connection(self) -> None:
        try:
            connection = await self._connect()
        except (OSError, TimeoutError, AMQPError, BusError) as error:
            self._note_down("connect-failed", error)
            return
        except asyncio.CancelledError as error:
            if cancelled_by_us():
                raise
            self._note_down("connect-failed", error)
            return
        self._note_up(connection)
        self._note_down("disconnected", await asyncio.shield(connection.closed))

    async def _connect(self) -> AmqpConnection:
        connection = await open_connection(self._parameters)
        connection.add_on_connection_blocked_callback(self._note_blocked)
        connection.add_on_connection_unblocked_callback(self._note_unblocked)
        try:
            await self._prepare(connection)
        except BaseException as error:
            connection.abort(ConnectionAbortedError(f"could not be prepared: {error}"))
            raise
        return connection

    def _note_up(self, connection: AmqpConnection) -> None:
        self.connection = connection
        self._up.set()
        _log.info("connected", f"connected to the broker for {self._purpose}")
        if not self._first.done():
            self._first.set_result(None)

    def _note_down(self, action: str, error: BaseException) -> None:
        if self.connection is not None:
            self._down_since = time.monotonic()
        self.connection, self.blocked = None, None
        self._up.clear()
        self._reason = explain(error)
        _log.warning(action, f"no connection to the broker for {self._purpose}: {self._reason}; trying again")
        if isinstance(error, TopologyConflict) and not self._first.done():
            self._first.set_exception(error)

    def _note_blocked(self, _connection: AmqpConnection, frame: Any) -> None:
        self.blocked = str(frame.method.reason)
        _log.warning("broker-blocked", f"the broker takes no messages now (alarm: {self.blocked})")
        self._on_blocked_change()

    def _note_unblocked(self, _connection: AmqpConnection, _frame: Any) -> None:
        self.blocked = None
        _log.info("broker-unblocked", "the broker takes messages again")
        self._on_blocked_change()


def explain(error: BaseException) -> str:
    """pika's errors often have no text; their class says what happened."""
    return str(error) if isinstance(error, (OSError, BusError)) and str(error) else repr(error)
