"""A broker of the test's own that may be killed: its data stays, and it comes back on the same port."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.private_broker import PrivateBroker


class MortalBroker:
    """One private node over several starts."""

    def __init__(self, folder: Path) -> None:
        self._broker = PrivateBroker.on_free_ports(folder)
        self._node: subprocess.Popen[bytes] | None = None
        self.kills = 0

    @property
    def url(self) -> str:
        return self._broker.url

    @property
    def folder(self) -> Path:
        return self._broker.folder

    def start(self) -> None:
        """Start the node; return when a queue can be declared."""
        self._node = self._broker.start()
        self._broker.wait_until_ready(self._node)

    def kill(self) -> None:
        """Kill the whole node with SIGKILL."""
        assert self._node is not None
        self._broker.kill(self._node)
        self.kills += 1

    def stop(self) -> None:
        if self._node is not None:
            self._broker.stop(self._node)

    def control(self, *arguments: str) -> None:
        """Run `rabbitmqctl` on this node."""
        self._broker.control(*arguments)

    @property
    def port(self) -> int:
        return self._broker.port


@contextmanager
def mortal_broker(folder: Path) -> Iterator[MortalBroker]:
    """Start a broker, and stop it at the end."""
    broker = MortalBroker(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
