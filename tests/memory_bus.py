"""The bus without a broker, for tests and benchmarks: the same promises, kept in memory, in a settled order.

It shares the policy of `ratchet/bus/retry_policy.py` and passes the same contract tests as the bus of a broker.
Leaves out what only a broker has: durability, several processes, length limits, alarms.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ratchet.bus.in_hand import STALLED_AFTER_S, Progress, never
from ratchet.bus.protocol import BroadcastHandler, Delivery, Handler, QueueState
from ratchet.bus.retry_policy import (
    Climb,
    GiveUp,
    after_failure,
    dead_letter_headers,
    passing,
    pause_s,
    retry_headers,
    travels,
)
from ratchet.bus.topology import DEAD_LETTERS, KEPT_RESPONSES, RESPONSES, REWARDS, UNROUTABLE, Topology
from ratchet.concurrency.keyed import cancelled_by_us
from ratchet.service.errors import BusError, Retry
from ratchet.service.telemetry import TRACE_HEADER, Log, trace_parent, trace_parent_of

_log = Log(__name__)

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


def own_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers that travel."""
    return {name: value for name, value in headers.items() if travels(name)}


@dataclass(eq=False)
class _Consumer:
    queue: str
    handler: Handler
    prefetch: int
    progress: Progress
    running: set[asyncio.Task[None]] = field(default_factory=set)


class MemoryBus:
    """Implements `Bus`. `time_scale` shortens the ladder's delays and the pauses: 0.001 makes 5 s 5 ms.

    `remembers`: how many messages of each queue `deliveries_published` has, the newest; None: all.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        name: str = "memory",
        time_scale: float = 0.001,
        remembers: int | None = None,
    ) -> None:
        self.topology = topology
        self._name = name
        self._time_scale = time_scale
        self._ready: dict[str, deque[Delivery]] = {queue: deque() for queue in topology.names}
        self._published: dict[str, deque[Delivery]] = {}
        self._remembers = remembers
        self._replies: dict[str, deque[Delivery]] = {}
        self._consumers: list[_Consumer] = []
        self._listeners: dict[str, list[BroadcastHandler]] = {}
        self._unfinished = 0
        self._draining = asyncio.Event()
        self._running = False
        self._failing = 0
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """(queue, outcome) → how often; outcomes as in the metric `ratchet_messages_total`."""

    async def start(self) -> None:
        self._running = True
        self._draining.clear()

    async def publish(
        self,
        queue: str,
        body: bytes,
        *,
        type: str,
        message_id: str,
        reply_to: str | None = None,
        correlation_id: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        await self._confirm()
        delivery = Delivery(queue, body, type, message_id, reply_to, correlation_id, _add_trace(headers))
        self._published.setdefault(queue, deque(maxlen=self._remembers)).append(delivery)
        if queue == REWARDS:
            self._broadcast(delivery)
        self._route(delivery)

    async def reply(
        self, reply_to: str, body: bytes, *, type: str, message_id: str, correlation_id: str | None
    ) -> bool:
        await self._confirm()
        if reply_to not in self._replies:
            return False
        delivery = Delivery(reply_to, body, type, message_id, None, correlation_id, _add_trace(None))
        self._replies[reply_to].append(delivery)
        return True

    async def consume(
        self,
        queue: str,
        handler: Handler,
        *,
        prefetch: int,
        stalled_after_s: float | None = STALLED_AFTER_S,
        advanced_at: Callable[[], float] = never,
    ) -> None:
        self.topology.queue(queue)
        if not self._running:
            raise BusError(f"can't consume {queue!r}: the bus is not started")
        self._consumers.append(_Consumer(queue, handler, prefetch, Progress(stalled_after_s, advanced_at)))
        self._deliver(queue)

    async def broadcast(self, topic: str, body: bytes, *, type: str, message_id: str) -> None:
        await self._confirm()
        self._broadcast(Delivery(topic, body, type, message_id, headers=_add_trace(None)))

    async def listen(self, topic: str, handler: BroadcastHandler) -> None:
        if not self._running:
            raise BusError(f"can't listen to {topic!r}: the bus is not started")
        self._listeners.setdefault(topic, []).append(handler)

    async def state(self, queue: str) -> QueueState:
        if queue not in self._ready:
            raise BusError(f"the broker can't say the state of {queue!r}: no such queue")
        return QueueState(len(self._ready[queue]), sum(consumer.queue == queue for consumer in self._consumers))

    async def stop(self, grace_s: float) -> bool:
        self._draining.set()
        consumers, self._consumers = self._consumers, []
        self._listeners = {}
        running = {task for consumer in consumers for task in consumer.running}
        before = self._unfinished
        if running:
            await asyncio.wait(running, timeout=grace_s)
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=1.0)
        self._running = False
        return self._unfinished == before

    def trouble(self) -> str | None:
        if (outage := self._outage()) is not None:
            return outage
        now = time.monotonic()
        troubles = ((consumer.queue, consumer.progress.trouble(now)) for consumer in self._consumers)
        return next((f"{queue!r}: {trouble}" for queue, trouble in troubles if trouble), None)

    def delivery_trouble(self, queue: str) -> str | None:
        return self._outage()

    def stall_reason(self) -> str | None:
        now = time.monotonic()
        stalled = ((consumer.queue, consumer.progress.stall_reason(now)) for consumer in self._consumers)
        return next((f"{queue!r}: {why}" for queue, why in stalled if why), None)

    def deliveries_published(self, queue: str) -> list[Delivery]:
        """Return all that was published to the queue, in order, consumed or not."""
        return list(self._published.get(queue, ()))

    def waiting(self, queue: str) -> list[Delivery]:
        """Return what lies in the queue now: `dead-letters` and `unroutable` are read this way."""
        return list(self._ready[queue])

    def open_reply_queue(self, name: str) -> deque[Delivery]:
        """Open a user's own queue, to be named in `reply_to`."""
        return self._replies.setdefault(name, deque())

    def fail_publishes(self, count: int) -> None:
        """Let the next publishes raise BusError, as when the broker is away for longer than the time-out."""
        self._failing = count

    def _outage(self) -> str | None:
        if not self._running:
            return "the bus is not started"
        return "the broker takes no messages now" if self._failing else None

    async def _confirm(self) -> None:
        if not self._running:
            raise BusError("can't publish: the bus is not started")
        await asyncio.sleep(0)
        if self._failing:
            self._failing -= 1
            raise BusError("the broker takes no messages now")

    def _route(self, delivery: Delivery) -> None:
        if delivery.queue not in self._ready:
            self._ready[UNROUTABLE].append(delivery)
            return
        self._ready[delivery.queue].append(delivery)
        self._deliver(delivery.queue)
        if delivery.queue == RESPONSES and KEPT_RESPONSES in self._ready:
            self._route(delivery._replace(queue=KEPT_RESPONSES))

    def _broadcast(self, delivery: Delivery) -> None:
        for handler in self._listeners.get(delivery.queue, ()):
            try:
                handler(delivery)
            except Exception as error:
                _log.error("hearing-failed", f"{delivery.queue}: {error}", exc_info=error)

    def _deliver(self, queue: str) -> None:
        consumers = [consumer for consumer in self._consumers if consumer.queue == queue]
        if self.topology.queue(queue).single_active_consumer:
            consumers = consumers[:1]
        ready = self._ready[queue]
        while ready and (free := [one for one in consumers if len(one.running) < one.prefetch]):
            consumer = min(free, key=lambda one: len(one.running))
            task = asyncio.create_task(self._handle(consumer, ready.popleft()))
            consumer.running.add(task)
            consumer.progress.begin(time.monotonic())
            task.add_done_callback(consumer.running.discard)
            task.add_done_callback(lambda _task: self._deliver(queue))

    async def _handle(self, consumer: _Consumer, delivery: Delivery) -> None:
        trace_parent.set(trace_parent_of(delivery.headers))
        outcome = None
        try:
            outcome = await self._settle(consumer, delivery)
        finally:
            consumer.progress.resume(id(delivery))
            consumer.progress.end(time.monotonic(), settled=outcome is not None)
            if outcome is None:
                self._unfinished += 1
                self._ready[delivery.queue].appendleft(delivery._replace(redelivered=True))
            self.outcomes[delivery.queue, outcome or "requeued"] += 1

    async def _settle(self, consumer: _Consumer, delivery: Delivery) -> str | None:
        failures = 0
        while not failures or not self._draining.is_set():
            try:
                await consumer.handler(delivery)
            except asyncio.CancelledError:
                if cancelled_by_us():
                    raise
                return self._pass_on(delivery, Retry("what the handler waited for was cancelled"))
            except Exception as error:
                if (trouble := passing(error)) is None:
                    return self._pass_on(delivery, error)
                failures += 1
                consumer.progress.pause(id(delivery), time.monotonic(), str(trouble))
                await self._pause(failures)
            else:
                return "acked"
        return None

    async def _pause(self, failures: int) -> None:
        pause = pause_s(failures, first_s=FIRST_PAUSE_S, cap_s=LONGEST_PAUSE_S, random=0.0)
        try:
            async with asyncio.timeout(pause * self._time_scale):
                await self._draining.wait()
        except TimeoutError:
            return

    def _pass_on(self, delivery: Delivery, error: Exception) -> str:
        verdict = after_failure(error, delivery.attempt, self.topology.rungs)
        if isinstance(verdict, GiveUp):
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            added = dead_letter_headers(verdict, queue=delivery.queue, at=at, by=self._name)
            headers = own_headers(delivery.headers) | added
            self._route(delivery._replace(queue=DEAD_LETTERS, headers=headers, redelivered=False))
            return "dead_lettered"
        self._climb(delivery, verdict)
        return "retried"

    def _climb(self, delivery: Delivery, verdict: Climb) -> None:
        headers = own_headers(delivery.headers) | retry_headers(verdict.attempt)
        again = delivery._replace(headers=headers, attempt=verdict.attempt, redelivered=True)
        delay_s = verdict.rung.delay_ms / 1000 * self._time_scale
        asyncio.get_running_loop().call_later(delay_s, self._route, again)


def _add_trace(headers: Mapping[str, Any] | None) -> dict[str, Any]:
    trace = trace_parent.get()
    return dict(headers or {}) | ({TRACE_HEADER: trace} if trace else {})
