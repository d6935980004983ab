"""A fleet answers a steady stream of tasks while clients listen: what they get, and what it costs the orchestrator."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice

import pika

from bench.api.listening import Heard, Listening
from bench.api.posting import SIZE
from bench.pipeline.contestants import fleet
from bench.pipeline.cpu import cpu_seconds, resident_mib
from bench.pipeline.load import task_bodies
from ratchet.bus.topology import TASKS
from tests.acceptance.fleet import ORCHESTRATOR, Member

NAMESPACE = "events."
CLIENTS = (1, 1000)
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Line:
    """What so many clients that read heard, and the orchestrator's cost meanwhile; `stopped`: beside one that does not
    read."""

    clients: int
    stopped: bool
    tasks: int
    per_s: float
    cpu_ms_per_task: float
    before_mib: float
    after_mib: float
    heard: Heard


def listen(url: str, *, tasks: int, per_s: float, clients: Sequence[int] = CLIENTS) -> list[Line]:
    with fleet(NAMESPACE, url) as members:
        publish(url, 200, per_s)  # all is warm
        orchestrator = members[ORCHESTRATOR]
        return [
            measure(orchestrator, url, many, stopped, tasks, per_s) for many in clients for stopped in (False, True)
        ]


def measure(orchestrator: Member, url: str, clients: int, stopped: bool, tasks: int, per_s: float) -> Line:
    listening = Listening(orchestrator.port, clients, tasks, tasks / per_s + PATIENCE_S, stopped)
    command = [sys.executable, "-m", "bench.api.listening", json.dumps(asdict(listening))]
    before_mib = resident_mib(orchestrator.pid)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listeners:
        assert listeners.stdout is not None
        listeners.stdout.readline()
        before = cpu_seconds({"it": [orchestrator.pid]})["it"]
        publish(url, tasks, per_s)
        said = listeners.stdout.readline()
        spent = cpu_seconds({"it": [orchestrator.pid]})["it"] - before
        after_mib = resident_mib(orchestrator.pid)
    heard = Heard(**json.loads(said))
    print(f"  {clients} clients{', one more stopped' if stopped else ''}: {heard}", file=sys.stderr)
    return Line(clients, stopped, tasks, per_s, 1000 * spent / tasks, before_mib, after_mib, heard)


def publish(url: str, tasks: int, per_s: float) -> None:
    """One after the other, at an even pace."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    began = time.monotonic()
    for number, body in enumerate(islice(task_bodies(SIZE), tasks)):
        connection.sleep(max(0.0, began + number / per_s - time.monotonic()))
        channel.basic_publish("", NAMESPACE + TASKS, body)
    connection.close()


def table(lines: Sequence[Line]) -> str:
    rows = [f"{'clients':>8}{'stopped':>9}{'tasks':>7}{'least':>7}{'most':>7}{'gaps':>6}{'p50 ms':>9}{'p99 ms':>9}"
            f"{'CPU ms/task':>13}{'MiB before':>12}{'after':>8}"]  # fmt: skip
    rows += [
        f"{one.clients:8}{int(one.stopped):9}{one.tasks:7}{one.heard.least:7}{one.heard.most:7}{one.heard.gaps:6}{one.heard.p50_ms:9.0f}"
        f"{one.heard.p99_ms:9.0f}{one.cpu_ms_per_task:13.2f}{one.before_mib:12.0f}{one.after_mib:8.0f}"
        for one in lines
    ]
    return "\n".join(rows)
