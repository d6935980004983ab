"""A RabbitMQ node on free ports, which a test or a benchmark starts, asks, stops and kills."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ratchet.service.errors import BusError
from services.cli.fleet.local_broker import LocalBroker
from services.cli.fleet.ports import is_taken

PORTS = range(10_000, 32_000)
"""Ports of which a free one is taken: below those the system gives to outgoing connections."""
_CHANCE = random.SystemRandom()
"""The system's randomness: processes that were seeded alike would ask for the same ports at the same time."""
_GIVEN = set[int]()


def free_port() -> int:
    """Return a free TCP port of the loopback, each once only, since it may be a while until somebody listens on it."""
    while (port := _CHANCE.choice(PORTS)) in _GIVEN or is_taken(port):
        pass
    _GIVEN.add(port)
    return port


@dataclass(frozen=True)
class PrivateBroker(LocalBroker):
    """`threads_bound`: each to its core, as RabbitMQ ships; on a machine that does other work too, that costs all of
    it.
    """

    threads_bound: bool = False

    @classmethod
    def on_free_ports(cls, folder: Path, *, threads_bound: bool = False) -> Self:
        return cls(folder, free_port(), free_port(), free_port(), threads_bound=threads_bound)

    @property
    def environment(self) -> dict[str, str]:
        bound = {"RABBITMQ_SCHEDULER_BIND_TYPE": "db"} if self.threads_bound else {}
        return super().environment | bound

    def start(self) -> subprocess.Popen[bytes]:
        """Start the node in a process group of its own; its console goes to `<folder>/console.log`."""
        self.prepare()
        with (self.folder / "console.log").open("ab") as console:
            return subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_ready(self, node: subprocess.Popen[bytes] | None = None, timeout_s: float = 90.0) -> None:
        """Wait until a queue can be declared, not only until the port is open. Raises BusError."""
        deadline = time.monotonic() + timeout_s
        while not self.answers():
            if node is not None and node.poll() is not None:
                raise BusError(
                    f"RabbitMQ ended with {node.returncode} while starting; see {self.folder / 'console.log'}"
                )
            if time.monotonic() > deadline:
                raise BusError(f"RabbitMQ not ready after {timeout_s:.0f} s; see {self.folder / 'console.log'}")
            time.sleep(0.25)  # real time: the broker starts beside us

    def control(self, *arguments: str) -> str:
        """Run `rabbitmqctl` on this node and return what it printed. Raises CalledProcessError."""
        program = Path(self.command[0]).with_name("rabbitmqctl")
        run = subprocess.run([program, *arguments], env=self.environment, capture_output=True, text=True, check=True)
        return run.stdout

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """Kill the whole node with SIGKILL, like a power cut."""
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()

    def stop(self, node: subprocess.Popen[bytes], timeout_s: float = 30.0) -> None:
        """Ask the node to stop, kill it if it does not, and end the port mapper it brought along."""
        node.terminate()
        try:
            node.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill(node)
        self.stop_port_mapper()

    def stop_port_mapper(self) -> None:
        """End the port mapper (epmd), which Erlang leaves running behind a node; this one serves no other."""
        if mapper := shutil.which("epmd"):
            subprocess.run([mapper, "-port", str(self.mapper_port), "-kill"], capture_output=True, check=False)
