"""Reads the fleet once a second: the services' metrics, the queues. Where one does not answer, that is said."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress

from pika.adapters.blocking_connection import BlockingConnection
from pika.exceptions import AMQPError

from ratchet.bus.amqp.short_connection import parameters, unreachable
from ratchet.cli.fleet.folder import FleetAccess
from ratchet.cli.fleet.service_http import metrics_text
from ratchet.cli.status.queue_depths import QueueDepth, queue_depths
from ratchet.cli.watch.figures import Snapshot, WatchFigures, figures, parse_series

WINDOW_S = 10.0
"""Rates and latencies are those of this many seconds."""


class WatchSource:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._connection: BlockingConnection | None = None
        self._window: deque[Snapshot] = deque()
        self.broker_fault: str | None = None
        """Why the last reading saw no queues; None if it saw them."""

    def read(self) -> tuple[WatchFigures, tuple[str, ...]]:
        """The figures now, and a sentence for each part that does not answer."""
        trouble: list[str] = []
        series = parse_series(self._metrics(trouble))
        now = Snapshot(time.monotonic(), self._depths(trouble), series)
        while self._window and now.at - self._window[0].at > WINDOW_S:
            self._window.popleft()
        before = self._window[0] if self._window else None
        self._window.append(now)
        return figures(now, before), tuple(trouble)

    def close(self) -> None:
        if self._connection is not None and self._connection.is_open:
            with suppress(AMQPError):
                self._connection.close()

    def _metrics(self, trouble: list[str]) -> list[str]:
        record = self._access.record
        if record is None:
            trouble.append("no fleet was started here: only the queues can be seen")
            return []
        texts = {program.name: metrics_text(program.http_port) for program in record.programs if program.http_port}
        trouble += [f"{name} does not answer" for name, text in texts.items() if text is None]
        return [text for text in texts.values() if text is not None]

    def _depths(self, trouble: list[str]) -> tuple[QueueDepth, ...]:
        """Over one connection, made anew after it was lost."""
        try:
            if self._connection is None or not self._connection.is_open:
                self._connection = BlockingConnection(parameters(self._access.amqp_url))
            depths = tuple(queue_depths(self._connection, self._access.topology, self._access.namespace))
        except (AMQPError, OSError) as error:
            self.broker_fault = str(unreachable(self._access.amqp_url, error))
            trouble.append(self.broker_fault)
            return ()
        self.broker_fault = None
        return depths
