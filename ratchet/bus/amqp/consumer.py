"""Consumes one queue: hands deliveries to the handler, acknowledges in batches, and comes back after every loss.

A consumer starts with a prefetch of 1 and widens at the first delivery that was never delivered before, so a message
that kills its consumer meets its end alone. A delivery whose channel is gone is left to finish; its ack is dropped.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from contextvars import copy_context

from pika.exceptions import AMQPError

from ratchet.bus.amqp.channel import open_channel
from ratchet.bus.amqp.connection import AmqpConnection, Receiver
from ratchet.bus.amqp.declaration import Declaration
from ratchet.bus.amqp.failures import Failures
from ratchet.bus.amqp.forwarding import CLAIM, WireMessage, unwrap
from ratchet.bus.amqp.frames import Properties
from ratchet.bus.amqp.link import Link, explain
from ratchet.bus.amqp.subscription import ChannelConsumer
from ratchet.bus.amqp.table import is_plain
from ratchet.bus.in_hand import DELIVERED_BYTES, ByteBudget, Progress, fitting_prefetch, weight
from ratchet.bus.protocol import NO_HEADERS, Delivery, Handler
from ratchet.bus.retry_policy import attempt_of, passing, pause_s
from ratchet.concurrency.keyed import cancelled_by_us
from ratchet.service import failpoint
from ratchet.service.errors import BusError, Retry, StorageUnavailable
from ratchet.service.metrics import queue_metrics
from ratchet.service.telemetry import Log, trace_parent, trace_parent_of

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0

_log = Log(__name__)


Arrival = tuple[ChannelConsumer, int, Delivery, Properties]
"""The subscription it came from, its delivery tag there, the message, and its properties as they were."""


class Consumer:
    """Runs from `start` until `stop_deliveries`; `close` when its handlers are done."""

    def __init__(
        self,
        queue: str,
        handler: Handler,
        prefetch: int,
        *,
        link: Link,
        declaration: Declaration,
        failures: Failures,
        budget: ByteBudget,
        progress: Progress,
    ) -> None:
        self.queue = queue
        self._wire_name = declaration.wire(queue)
        self._handler = handler
        self._prefetch = prefetch
        self._link = link
        self._declaration = declaration
        self._failures = failures
        self._metrics = queue_metrics(queue)
        self._metrics.in_flight.set_function(lambda: len(self._running))
        self._wide = prefetch <= 1
        self._draining = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        """The context that every handler begins with."""
        self._begun = 0
        self._running: dict[int, asyncio.Task[None]] = {}
        """Handlers that run, by number."""
        self._backlog: deque[Arrival] = deque()
        """Deliveries beyond the prefetch or the budget: more while handlers of a lost channel still run."""
        self._budget = budget
        self._delivered_bytes = 0
        """Bytes of bodies, running or in the backlog."""
        self._held_back = False
        """No more deliveries until those in hand are fewer bytes."""
        self._progress = progress
        self._subscription: ChannelConsumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._trouble: str | None = "not subscribed yet"
        self.unfinished = 0

    async def start(self) -> None:
        """Returns when deliveries may come."""
        self._task = asyncio.create_task(self._stay_subscribed())
        await self._first

    def trouble(self) -> str | None:
        if lost := self.subscription_trouble():
            return lost
        stands = self._progress.trouble(time.monotonic())
        return f"{self.queue!r}: {stands}" if stands else None

    def subscription_trouble(self) -> str | None:
        """Return why no deliveries come, whatever becomes of those in hand."""
        if self._trouble:
            return f"not consuming {self.queue!r}: {self._trouble}"
        if self._task is not None and self._task.done() and not self._draining.is_set():
            return f"not consuming {self.queue!r}: the loop that keeps it subscribed has ended; restart this process"
        return None

    def stall_reason(self) -> str | None:
        stalled = self._progress.stall_reason(time.monotonic())
        return f"{self.queue!r}: {stalled}" if stalled else None

    async def stop_deliveries(self) -> None:
        """No delivery starts a handler from now on. Handlers that pause in place give up."""
        self._draining.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if not self._first.done():
            self._first.set_exception(BusError(f"stopped before {self.queue!r} could be consumed"))
        subscription = self._subscription
        if subscription is not None and subscription.alive:
            try:
                await subscription.cancel()
            except (BusError, TimeoutError) as error:
                _log.warning("cancel-failed", f"{self.queue}: {explain(error)}")

    @property
    def running(self) -> frozenset[asyncio.Task[None]]:
        return frozenset(self._running.values())

    def close(self) -> None:
        """Stop consuming. What is not acknowledged by now goes back to the queue."""
        if self._subscription is not None and self._subscription.alive:
            self._subscription.close()

    async def _stay_subscribed(self) -> None:
        failures, last = 0, None
        while True:
            connection = await self._link.wait_open()
            subscribed_at = time.monotonic()
            try:
                if connection is last:
                    await self._declaration.declare(connection)
                last = connection
                await self._hold_one_subscription(connection)
            except (BusError, AMQPError, TimeoutError) as error:
                self._note_lost(error)
            except asyncio.CancelledError as error:
                if cancelled_by_us():
                    raise
                self._note_lost(error)
            failures = 1 if time.monotonic() - subscribed_at > LONGEST_PAUSE_S * 2 else failures + 1
            await asyncio.sleep(pause_s(failures, first_s=FIRST_PAUSE_S, cap_s=LONGEST_PAUSE_S, random=random.random()))

    async def _hold_one_subscription(self, connection: AmqpConnection) -> None:
        subscription = ChannelConsumer(await open_channel(connection), self._wire_name)
        self._subscription = subscription
        self._held_back = False
        try:
            await subscription.consume(self._prefetch if self._wide else 1, self._receiver(subscription))
        except TimeoutError:
            subscription.close()
            raise
        self._trouble = None
        _log.info("consuming", f"consuming {self.queue}", queue=self.queue)
        if not self._first.done():
            self._first.set_result(None)
        raise await subscription.wait_end()

    def _note_lost(self, error: BaseException) -> None:
        if not self._draining.is_set():
            self._trouble = explain(error)
            _log.warning("consumer-lost", f"{self.queue}: {self._trouble}; subscribing again", queue=self.queue)

    def _receiver(self, subscription: ChannelConsumer) -> Receiver:
        def receive(tag: int, redelivered: bool, properties: Properties, body: bytes) -> None:
            subscription.deliver(tag)
            if self._draining.is_set() or not subscription.alive:
                return
            failpoint.reach("received")
            headers = properties.headers or NO_HEADERS
            attempt = attempt_of(headers)
            seen = redelivered or bool(headers.get("x-delivery-count"))
            user_id = properties.user_id
            if CLAIM in headers:
                properties, body = unwrap(WireMessage(properties, body))
                headers = properties.headers or NO_HEADERS
            delivery = Delivery(
                self.queue,
                body,
                properties.type,
                properties.message_id,
                _queue_name(properties.reply_to),
                properties.correlation_id,
                headers,
                attempt,
                seen or attempt > 0,
                user_id,
            )
            self._delivered_bytes += len(body)
            if not self._wide and not seen:
                self._wide = True
                subscription.widen(fitting_prefetch(self._prefetch, len(body)))
            elif self._delivered_bytes > DELIVERED_BYTES and not self._held_back:
                self._held_back = True
                subscription.pause()
            arrival = (subscription, tag, delivery, properties)
            if self._backlog or not self._begin(arrival):
                self._backlog.append(arrival)
                self._begin_waiting()

        return receive

    def _begin(self, arrival: Arrival) -> bool:
        """False where the prefetch or the budget does not allow it."""
        if len(self._running) >= self._prefetch:
            return False
        taken = weight(arrival[2].body)
        if not self._budget.take(taken, alone=not self._running):
            return False
        self._begun += 1
        handling = self._handle(self._begun, taken, *arrival)
        self._running[self._begun] = self._loop.create_task(handling, context=self._context.copy())
        self._progress.begin(time.monotonic())
        return True

    def _begin_waiting(self) -> None:
        """Begin as many waiting messages as the prefetch and the budget allow."""
        while self._backlog and len(self._running) < self._prefetch and not self._draining.is_set():
            arrival = self._backlog[0]
            if not arrival[0].alive:
                self._delivered_bytes -= len(arrival[2].body)
            elif not self._begin(arrival):
                self._budget.wait(self, self._begin_waiting)
                return
            self._backlog.popleft()
        self._budget.leave(self)

    def _finish_handler(self, number: int, size: int, taken: int, *, cancelled: bool) -> None:
        """`size`: of the body, in bytes; `taken`: of the budget."""
        del self._running[number]
        self._delivered_bytes -= size
        self._progress.resume(number)
        self._progress.end(time.monotonic(), settled=not cancelled)
        self._budget.give_back(taken)
        if self._backlog:
            self._begin_waiting()
        if self._held_back and self._delivered_bytes < DELIVERED_BYTES / 2:
            self._take_more(size)

    def _take_more(self, size: int) -> None:
        """Messages were large lately: of such, no more at once than there is room for."""
        self._held_back = False
        if self._subscription is not None and self._subscription.alive and not self._draining.is_set():
            self._wide = self._prefetch <= 1
            self._subscription.resume(fitting_prefetch(self._prefetch, size))

    async def _handle(
        self,
        number: int,
        taken: int,
        subscription: ChannelConsumer,
        tag: int,
        delivery: Delivery,
        properties: Properties,
    ) -> None:
        trace_parent.set(trace_parent_of(delivery.headers))
        began = time.perf_counter()
        settled = cancelled = False
        try:
            try:
                await self._handler(delivery)
            except (Exception, asyncio.CancelledError) as error:
                settled = await self._settled_later(number, subscription, delivery, properties, error)
            else:
                self._metrics.acked.inc()
                settled = True
            if settled:
                failpoint.reach("before-ack")
                subscription.settle(tag)
        except asyncio.CancelledError:
            cancelled = True
            raise
        except Exception as error:
            _log.error("handler-lost", f"{self.queue}: {error!r}; its channel is closed", exc_info=error)
            self.close()
        finally:
            self._metrics.handle_seconds.observe(time.perf_counter() - began)
            if not settled:
                self.unfinished += 1
                self._metrics.requeued.inc()
            self._finish_handler(number, len(delivery.body), taken, cancelled=cancelled)

    async def _settled_later(
        self,
        number: int,
        subscription: ChannelConsumer,
        delivery: Delivery,
        properties: Properties,
        error: Exception | asyncio.CancelledError,
    ) -> bool:
        """Retry or give up a message whose handler failed. True when it may be acknowledged, handled or at its next
        place.

        Raises CancelledError where this task was cancelled.
        """
        failures = 0
        while True:
            if isinstance(error, asyncio.CancelledError):
                if cancelled_by_us():
                    raise error
                error = Retry("what the handler waited for was cancelled")
            trouble = await self._pass_on(delivery, properties, error)
            if trouble is None:
                return True
            failures += 1
            if not await self._pause_in_place(number, subscription, trouble, failures):
                return False
            try:
                await self._handler(delivery)
            except (Exception, asyncio.CancelledError) as further:
                error = further
            else:
                self._metrics.acked.inc()
                return True

    async def _pass_on(self, delivery: Delivery, properties: Properties, error: Exception) -> str | None:
        """A message whose handler failed, to its next place; or what trouble of the broker or a disk it waits for."""
        if (trouble := passing(error)) is not None:
            return explain(trouble)
        try:
            await self._failures.settle(delivery, properties, error)
        except (BusError, StorageUnavailable) as further:
            return explain(further)
        return None

    async def _pause_in_place(self, number: int, subscription: ChannelConsumer, trouble: str, failures: int) -> bool:
        """False if the handler must not run again: the bus drains, or the message is no longer ours."""
        pause = pause_s(failures, first_s=FIRST_PAUSE_S, cap_s=LONGEST_PAUSE_S, random=random.random())
        _log.info("paused", f"{self.queue}: {trouble}; again in {pause:.1f} s", queue=self.queue)
        self._progress.pause(number, time.monotonic(), trouble)
        try:
            async with asyncio.timeout(pause):
                await self._draining.wait()
        except TimeoutError:
            return subscription.alive
        return False


def _queue_name(reply_to: str | None) -> str | None:
    """None where no queue can have that name: the answer then goes to the queue of results alone."""
    if reply_to and is_plain(reply_to):
        return reply_to
    if reply_to is not None:
        _log.info("no-reply-queue", f"reply_to is no queue's name, so it is taken for none: {reply_to!a}")
    return None
