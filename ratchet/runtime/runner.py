"""Runs a service: HTTP for operators, the bus, and an orderly end on SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import h11
import uvicorn
import uvloop
from fastapi import APIRouter
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from ratchet.bus.in_hand import STALLED_AFTER_S, never
from ratchet.bus.protocol import Bus, Handler
from ratchet.http.server.application import application
from ratchet.runtime.watchdog import BEAT_S, MARGIN_S, Watchdog, WatchdogThread
from ratchet.service.errors import FAULTS, Hung, SettingsError
from ratchet.service.metrics import READY
from ratchet.service.settings import FleetSettings
from ratchet.service.settings_check import unknown_names
from ratchet.service.telemetry import Log, log_to_stdout

COLLECT_EVERY_S = 60.0


class IdleCollector:
    """Looks for garbage where Python itself has not for a minute; a process that is busy pays nothing."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._looks = _looks()
        self._since = seconds()

    def beat(self) -> None:
        """Call it every few seconds, at most."""
        now, looks = self._seconds(), _looks()
        if looks == self._looks and now - self._since < COLLECT_EVERY_S:
            return
        if looks == self._looks:
            gc.collect()
        self._looks, self._since = looks, now


def _looks() -> int:
    """Return how often Python has collected its youngest generation."""
    looks: int = gc.get_stats()[0]["collections"]
    return looks


HEAD_S = 20.0
WS_FRAME_BYTES = 16 * 1024
"""Bytes of a frame that a WebSocket's client may send."""


class HeaderTimeoutProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, but a request's head (its line and headers) must come in within `head_s` seconds.

    A connection that brought no whole head in that time, or at most twice that, is closed: else whoever reaches the
    port could hold open files without end, without a token, by saying nothing. Bodies have their own bound
    (ratchet/http/server/limits.py), and a connection that is kept between two requests has uvicorn's.
    """

    head_s = HEAD_S
    _check: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look_later(was_idle=True)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._check is not None:
            self._check.cancel()

    def _look_later(self, *, was_idle: bool) -> None:
        self._check = self.loop.call_later(self.head_s, self._close_if_idle, was_idle, self.cycle)

    def _close_if_idle(self, was_idle: bool, last: RequestResponseCycle | None) -> None:
        is_idle = self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE
        if was_idle and is_idle and self.cycle is last:
            self.transport.close()
        else:
            self._look_later(was_idle=is_idle)


log = Log("service")


@dataclass(frozen=True, slots=True)
class Subscription:
    """A queue, what handles its messages, and how many at once.

    With some in hand and none settled for `stalled_after_s`, the service is not ready; None: it may take its time.
    Long work that shows its steps does so by `advanced_at`, as in `in_hand.Stepwise`: it is not stalled while it steps.
    """

    queue: str
    handler: Handler
    prefetch: int
    stalled_after_s: float | None = STALLED_AFTER_S
    advanced_at: Callable[[], float] = never


class Service(Protocol):
    name: str

    def routers(self) -> Sequence[APIRouter]:
        """Its HTTP routes, asked once before `start`; they are called only after it, and may be none."""

    async def start(self) -> None:
        """Get ready to handle messages; may take long (load a model, wait as a standby)."""

    def subscriptions(self) -> Sequence[Subscription]:
        """Return what to consume; asked once after `start`."""

    def trouble(self) -> str | None:
        """Return why it can't do its work now, as a sentence; None if it can."""

    async def stop(self) -> None:
        """Release what `start` took; called when no handler runs any more."""


class NoBus:
    """Stands in for the bus of a service that consumes no queue."""

    async def start(self) -> None:
        """Connect nothing."""

    async def consume(self, queue: str, handler: Handler, **_: object) -> None:
        raise ValueError(f"this service has no bus to consume {queue!r} from")

    async def stop(self, grace_s: float) -> bool:
        return True

    def trouble(self) -> str | None:
        return None

    def stall_reason(self) -> str | None:
        return None


DRAINING = "draining"
CLOSE_AFTER_S = 2
"""Seconds that open streams get at the end; requests had the time to drain before."""
TAKES_NOTHING_MS = 120_000
"""A client that takes nothing of what waits for it for so long is cut off, by the kernel; connections inherit it."""
OPEN_FILES = 65_536
"""Open files wanted, as far as the hard limit allows."""
COLLECT_AFTER = 50_000
"""Allocations between two looks for garbage cycles."""


def _spare_the_collector() -> None:
    """Freeze all that is loaded by now: it stays for good, and the garbage collector need not look through it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The Runner handles signals."""
        yield


def _listen(host: str, port: int, service: str) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does for sockets it made itself
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TAKES_NOTHING_MS)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"{service} can't listen on {host}:{port} ({error.strerror}): "
            f"free the port or set RATCHET_{service.upper()}_HTTP_PORT to another"
        ) from None
    return listener


class Runner:
    """One service from its start to its orderly end."""

    def __init__(
        self,
        service: Service,
        bus: Bus | NoBus,
        settings: FleetSettings,
        http_port: int,
        *,
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        """`leave` ends the process where it can't end in order."""
        self._service = service
        self._bus = bus
        self._settings = settings
        self._port = http_port
        self._phase: str | None = "starting"
        self._stop = asyncio.Event()
        self._watchdog = Watchdog(settings.restart_stalled_s, settings.drain_grace_s + MARGIN_S)
        self._leave = leave
        self._looking: WatchdogThread | None = None
        self._hung: str | None = None
        READY.set_function(lambda: self._phase == DRAINING or self._trouble() is None)

    async def run(self) -> None:
        """Returns after SIGTERM or SIGINT, drained. Raises what made it fail to start; Hung, after draining."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        listener = _listen(self._settings.http_host, self._port, self._service.name)
        server = _Server(self._http())
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            if await self._unless_stopped(self._begin()):
                await self._stopped_or_hung()
            await self._end()
        finally:
            server.should_exit = True
            await serving
            self._stop_looking()
        if self._hung:
            raise Hung(self._hung)

    async def _stopped_or_hung(self) -> None:
        collector = IdleCollector()
        while not self._stop.is_set():
            collector.beat()
            if (why := self._watchdog.beat(self._bus.stall_reason())) is not None:
                self._hung = f"{why}. This process ends, to be started again, and what it has in hand goes back"
                log.error("hung", self._hung)
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._stop.wait()

    def _http(self) -> uvicorn.Config:
        service = self._service
        front = application(service.name, service.routers(), self._settings, self._trouble, self._not_at_work)
        return uvicorn.Config(
            front,
            http=HeaderTimeoutProtocol,
            ws="websockets-sansio",
            ws_max_size=WS_FRAME_BYTES,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSE_AFTER_S,
        )

    def _not_at_work(self) -> str | None:
        return self._phase and (self._service.trouble() or self._phase)

    def _trouble(self) -> str | None:
        return self._bus.trouble() or self._service.trouble() or self._phase

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        starting = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if starting.done():
            starting.result()
            return True
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        return False

    async def _begin(self) -> None:
        self._phase = "connecting to the broker"
        await self._bus.start()
        self._phase = "starting"
        await self._service.start()
        self._looking = WatchdogThread(self._watchdog, self._leave)
        for subscription in self._service.subscriptions():
            await self._bus.consume(
                subscription.queue,
                subscription.handler,
                prefetch=subscription.prefetch,
                stalled_after_s=subscription.stalled_after_s,
                advanced_at=subscription.advanced_at,
            )
        _spare_the_collector()
        self._phase = None
        log.info("ready", f"{self._service.name} is ready", port=self._port)

    def _stop_looking(self) -> None:
        if self._looking is not None and not self._hung:  # else it goes on: what hangs may hold up the end too
            self._looking.close()

    async def _end(self) -> None:
        self._phase = DRAINING
        self._stop_looking()
        log.info("draining", "finishing what is in hand", grace_s=self._settings.drain_grace_s)
        finished = await self._bus.stop(self._settings.drain_grace_s)
        await self._service.stop()
        if not finished:
            log.warning("handed-back", "the grace time ended: what was not finished goes back to its queue")
        log.info("stopped", f"{self._service.name} has stopped")


@dataclass(frozen=True, slots=True)
class Wired:
    """A service with all it needs to run."""

    service: Service
    bus: Bus | NoBus
    settings: FleetSettings
    http_port: int


def _make_room_for_clients() -> None:
    """A shell's usual limit of 1,024 open files would end the listening with the thousandth client."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(most, OPEN_FILES)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def run(name: str, wire: Callable[[], Wired]) -> None:
    """Wire the service and run it until SIGTERM, then exit with 0. A failing start is one log line and exit code 1.

    `hopeless` in that line: with these settings, another start fails in the same way.
    """
    hopeless = True

    async def main() -> None:
        nonlocal hopeless
        wired = wire()
        hopeless = False
        log_to_stdout(name, wired.settings.log_level)
        await Runner(wired.service, wired.bus, wired.settings, wired.http_port).run()

    log_to_stdout(name)
    for sentence in unknown_names(os.environ):
        log.warning("unknown-setting", sentence)
    _make_room_for_clients()
    try:
        uvloop.run(main())
    except FAULTS as error:
        if hopeless:
            log.error("failed", str(error), hopeless=True)
        else:
            log.error("failed", str(error))
        sys.exit(1)
