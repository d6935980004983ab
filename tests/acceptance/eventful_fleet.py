"""A fleet that meets in a few minutes most of what can happen to one, so that its dashboards have data.

The demo (trainings, promotions, a bad adapter), then ordinary users, feedback, and mishaps: refused and repeated tasks,
unroutable and dead-lettered messages, a training that the log can't support, and at last one whose experiment runs.
Leaves out what needs another machine: a lost broker, a full disk.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from pika.spec import BasicProperties

from demos.sort.demo import users_tasks
from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.topology import EXCHANGE
from ratchet.client import Fleet
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import end_of_log
from schemas.messages.base import Metadata
from schemas.messages.result import Result
from schemas.messages.task import Task
from schemas.messages.training import TrainRequest
from services.cli.feedback import new_feedback, publish_feedback
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.own_fleet import FleetPlace, only
from services.cli.train.run import publish_train_request
from tests.acceptance.fleet import REPOSITORY
from tests.infra.measured_broker import MeasuredBroker
from tests.private_broker import free_port

AGENT = "small"
DEMO = ("--keep", "--groups", "600", "--turns", "2", "--no-turn-after", "600", "--timeout", "600")
PAUSE_S = 0.15
"""Between two tasks of ordinary users."""
SAMPLES = 8
MISHAPS = 12
FEEDBACK_EVERY = 5
STALL_S = 300.0


@dataclass(frozen=True)
class EventfulFleet:
    """All it writes lies in the folder; its first port is that of the orchestrator."""

    folder: Path
    broker: MeasuredBroker
    port: int

    @property
    def place(self) -> FleetPlace:
        return FleetPlace(self.folder / "demo")

    @property
    def targets(self) -> Mapping[str, Sequence[str]]:
        """Addresses by the job's name in prometheus.yml. There is no log shipper."""
        ports = {
            "orchestrator": self.port,
            "agent": self.port + 10,
            "scorer": self.port + 50,
            "trainer": self.port + 60,
        }
        return {name: [f"127.0.0.1:{port}"] for name, port in (ports | {"rabbitmq": self.broker.metrics_port}).items()}

    @contextmanager
    def demo(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the demo; its fleet stays up to the end of the block."""
        ratchet = (sys.executable, "-m", "services.cli")
        with only({"RATCHET_STATE_DIR": str(self.folder), "RATCHET_AMQP_URL": self.broker.url}):
            demo = subprocess.Popen([*ratchet, "demo", *DEMO, "--port-base", str(self.port)], cwd=REPOSITORY)
        try:
            yield demo
        finally:
            demo.terminate()
            demo.wait()
            with self._here():
                subprocess.run([*ratchet, "down"], cwd=REPOSITORY, check=True)

    def after_the_demo(self, ordinary_s: float) -> None:
        """Run ordinary users for so many seconds, then the mishaps, then ordinary users again."""
        with self._here():
            access = FleetAccess.here()
            asked = users_tasks(2, uuid.uuid4().hex[:8], samples=SAMPLES)
            self._users(access, asked, ordinary_s)
            _mishaps(access, asked)
            publish_train_request(access, _training("of-nothing", since=end_of_log(access.logs_dir, INTERACTIONS)))
            publish_train_request(access, _training("again", since=0))
            self._users(access, asked, ordinary_s)

    @contextmanager
    def _here(self) -> Iterator[None]:
        """Let clients that look for a fleet find this one, within the block."""
        with only({"RATCHET_STATE_DIR": str(self.place.root), "RATCHET_ADAPTERS_DIR": str(self.place.adapters)}):
            yield

    def _users(self, access: FleetAccess, asked: Iterator[Task], seconds: float) -> None:
        end = time.monotonic() + seconds
        with Fleet(access.amqp_url, namespace=access.namespace, stall_s=STALL_S) as client:
            for number, result in enumerate(client.batch(_slowly(asked, end))):
                if number % FEEDBACK_EVERY == 0:
                    _thank(access, result)


@contextmanager
def eventful_fleet(folder: Path) -> Iterator[EventfulFleet]:
    """Start a broker of its own, and nothing else yet."""
    broker = MeasuredBroker.on_free_ports(folder / "rabbitmq")
    node = broker.start()
    try:
        broker.wait_until_ready(node)
        yield EventfulFleet(folder, broker, free_port())
    finally:
        broker.stop(node)


def _slowly(tasks: Iterator[Task], end: float) -> Iterator[Task]:
    for task in tasks:
        if time.monotonic() > end:
            return
        yield task
        time.sleep(PAUSE_S)  # real time: a rate


def _thank(access: FleetAccess, result: Result) -> None:
    publish_feedback(access, new_feedback({"task_id": result.task_id, "score": round(result.score or 0)}))


def _training(name: str, since: int) -> TrainRequest:
    about = Metadata(timestamp=datetime.now(UTC), source="eventful fleet")
    return TrainRequest(request_id=name, agent_id=AGENT, metadata=about, since=since)


def _mishaps(access: FleetAccess, asked: Iterator[Task]) -> None:
    """Send tasks twice, and messages that are not JSON, for an unknown agent, or routed to no queue."""
    tasks = list(islice(asked, MISHAPS))
    with Fleet(access.amqp_url, namespace=access.namespace, stall_s=STALL_S) as client:
        for _ in range(2):
            list(client.batch(tasks))
    stray = Task(task_id=f"stray-{uuid.uuid4().hex}", input="sort: cba", agent_id="nobody")
    exchange, queue = access.namespace + EXCHANGE, f"{access.namespace}tasks"
    with open_connection(access.amqp_url) as connection:
        channel = connection.channel()
        for _ in range(MISHAPS):
            channel.basic_publish("", queue, b"{ no JSON", BasicProperties(delivery_mode=2))
        channel.basic_publish("", queue, stray.encode(), BasicProperties(delivery_mode=2))
        channel.basic_publish(exchange, f"{access.namespace}no-such-queue", stray.encode())
