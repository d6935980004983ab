"""The contestants, and how each is started and stopped: three worker processes, and the client that suits them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pika

from bench.pipeline.hops import PREFETCH, QUEUES, ROLES, Wiring, declare
from ratchet.bus.topology import RESULTS
from tests.acceptance.fleet import Fleet

REPOSITORY = Path(__file__).parents[2]
FLEET, BARE = "fleet", "pika (bare echo)"
SETTLED_S = 20.0
FLEET_ENVIRONMENT = {
    "RATCHET_LOG_LEVEL": "WARNING",
    "RATCHET_SAMPLES": "1",
    "RATCHET_ORCHESTRATOR_PREFETCH": str(PREFETCH["front"]),
    "RATCHET_AGENT_PREFETCH": str(PREFETCH["agent"]),
    "RATCHET_SCORER_PREFETCH": str(PREFETCH["scorer"]),
}
"""One answer a task, as the echoes give, and the same prefetch as theirs."""


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    module: str
    namespace: str
    note: str


CONTESTANTS = (
    Contestant(FLEET, "services", "fleet-", "validates, logs with fsync, scores; quorum queues"),
    Contestant(BARE, "bench.pipeline.echo_pika", "bare.", "AsyncioConnection, uvloop; quorum queues"),
    Contestant("aio-pika", "bench.pipeline.echo_aio_pika", "aio.", "uvloop; quorum queues"),
    Contestant("FastStream", "bench.pipeline.echo_faststream", "faststream.", "uvloop; quorum queues"),
)


@contextmanager
def running(contestant: Contestant, url: str) -> Iterator[list[int]]:
    """Run its worker processes, ready and with empty queues, within the block. Yields their process ids."""
    if contestant.name == FLEET:
        with fleet(contestant.namespace, url) as members:
            yield list(members.pids.values())
    else:
        with _echo(contestant, url) as pids:
            yield pids


@contextmanager
def fleet(namespace: str, url: str) -> Iterator[Fleet]:
    """Run a fleet, with logs in a folder that goes away with it."""
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-") as folder:
        members = Fleet(Path(folder), url, namespace=namespace, environment=FLEET_ENVIRONMENT).start()
        try:
            yield members
        finally:
            members.stop()


@contextmanager
def _echo(contestant: Contestant, url: str) -> Iterator[list[int]]:
    declare(url, contestant.namespace)
    workers = [_start(contestant, Wiring(url, contestant.namespace, role)) for role in ROLES]
    try:
        _wait_for_consumers(contestant, url)
        yield [worker.pid for worker in workers]
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            _end(worker)


def _start(contestant: Contestant, wiring: Wiring) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", contestant.module],
        cwd=REPOSITORY,
        env={**os.environ, **wiring.environment()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _end(worker: subprocess.Popen[bytes]) -> None:
    try:
        worker.wait(10)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


def _wait_for_consumers(contestant: Contestant, url: str) -> None:
    """Wait until each queue has a consumer. Raises TimeoutError."""
    deadline = time.monotonic() + SETTLED_S
    waiting = [queue for queue in QUEUES if queue != RESULTS]
    while waiting:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{contestant.name}: nobody consumes {', '.join(waiting)}")
        waiting = [queue for queue in waiting if _consumers(url, contestant.namespace + queue) == 0]
        time.sleep(0.1)


def _consumers(url: str, queue: str) -> int:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        return int(connection.channel().queue_declare(queue, passive=True).method.consumer_count)
    except pika.exceptions.ChannelClosedByBroker:
        return 0
    finally:
        connection.close()
