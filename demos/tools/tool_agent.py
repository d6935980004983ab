"""The process that answers the tools demo's tasks, for as long as the demo needs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demos.toy.tools.agent.order import AgentOrder
from services.cli.fleet.folder import FleetAccess
from services.cli.record import replicas
from services.cli.terminal import CommandError

READY = "ready"
STOP_S = 15.0


def queue_of(run: str) -> str:
    """Where its Work comes, without the namespace."""
    return f"reply.tool-agent.{run}"


@contextmanager
def tool_agent(access: FleetAccess, agent_id: str, queue: str, log: Path) -> Iterator[None]:
    """Ready within the block. Raises CommandError where it does not get so far; `log` says why."""
    order = AgentOrder(
        amqp_url=access.amqp_url,
        namespace=access.namespace,
        queue=queue,
        agent_urls=replicas(access.record, agent_id),
    )
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "demos.toy.tools.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,  # Ctrl-C is the demo's: its end is this one's
        )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(order.model_dump_json().encode() + b"\n")
        process.stdin.flush()
        if not any(line.strip() == READY.encode() for line in process.stdout):
            raise CommandError(f"the tool agent did not start: see {log}")
        yield
    finally:
        process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
