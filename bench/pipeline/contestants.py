"""The fleet and the bare echo: how each is started and stopped."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika

from bench.pipeline.echo import PREFETCH, QUEUES, ROLES, declare
from ratchet.bus.topology import RESULTS
from tests.acceptance.fleet import Fleet

SETTLED_S = 20.0
FLEET_ENVIRONMENT = {
    "RATCHET_LOG_LEVEL": "WARNING",
    "RATCHET_SAMPLES": "1",
    "RATCHET_ORCHESTRATOR_PREFETCH": str(PREFETCH["front"]),
    "RATCHET_AGENT_PREFETCH": str(PREFETCH["agent"]),
    "RATCHET_SCORER_PREFETCH": str(PREFETCH["scorer"]),
}
"""One answer a task, as the echo gives, and the same prefetch as its own."""


@contextmanager
def fleet(url: str, namespace: str) -> Iterator[dict[str, int]]:
    """Run a fleet, with logs in a folder that goes away with it. Yields the process ids of its members by name."""
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-") as folder:
        members = Fleet(Path(folder), url, namespace=namespace, environment=FLEET_ENVIRONMENT).start()
        try:
            yield members.pids
        finally:
            members.stop()


@contextmanager
def echo(url: str, namespace: str) -> Iterator[dict[str, int]]:
    """Run the echo's processes, ready within the block. Yields their process ids by role."""
    declare(url, namespace)
    command = [sys.executable, "-m", "bench.pipeline.echo", url, namespace]
    workers = {role: subprocess.Popen([*command, role]) for role in ROLES}
    try:
        _wait_for_consumers(url, namespace)
        yield {role: worker.pid for role, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()


def _wait_for_consumers(url: str, namespace: str) -> None:
    """Wait until each queue has a consumer. Raises TimeoutError."""
    deadline = time.monotonic() + SETTLED_S
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    waiting = [queue for queue in QUEUES if queue != RESULTS]
    while waiting:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody consumes {', '.join(waiting)}")
        counts = {queue: channel.queue_declare(namespace + queue, passive=True).method for queue in waiting}
        waiting = [queue for queue, method in counts.items() if not method.consumer_count]
        time.sleep(0.1)
    connection.close()
