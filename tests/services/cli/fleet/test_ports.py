"""A taken port is named, with who holds it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli.fleet.options import FleetOptions
from services.cli.fleet.plan import plan_fleet
from services.cli.fleet.ports import is_taken
from services.cli.fleet.start import require_ports
from services.cli.terminal import CommandError


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


def test_a_taken_port_is_reported_with_the_process_that_holds_it(listener: socket.socket) -> None:
    port = listener.getsockname()[1]

    options, url = FleetOptions(port_base=port), "amqp://127.0.0.1:1/"

    with pytest.raises(CommandError) as refusal:
        require_ports(plan_fleet(options, Path(), url, 0.0), options, url)

    assert f"port {port} (for orchestrator) by" in str(refusal.value)
    assert f"(pid {os.getpid()})" in str(refusal.value)
    assert "Free them, or start on others: ratchet" in str(refusal.value)


def test_a_port_is_free_again_when_its_listener_is_gone(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert is_taken(port)

    listener.close()

    assert not is_taken(port)
