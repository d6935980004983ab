"""What `make demo` says of taken ports before it installs anything."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from infra.check_ports import LAST_AMQP, LAST_BASE, advice, ports_of
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.plan import plan_fleet
from services.cli.terminal import UsageError
from tests.private_broker import free_port


def test_a_taken_port_is_named_with_others_to_take() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = advice("demo-real", port, 5673)

    assert said is not None
    assert said.startswith(f"taken: port {port}")
    assert "make demo-real PORT_BASE=" in said


def test_no_port_is_advised_that_the_fleet_refuses() -> None:
    with socket.create_server(("127.0.0.1", LAST_BASE)):
        said = advice("demo", LAST_BASE, free_port())

    assert said == f"taken: port {LAST_BASE}. Free them, or name others: make demo PORT_BASE=N AMQP_PORT=N"
    plan_fleet(FleetOptions(port_base=LAST_BASE, amqp_port=LAST_AMQP), Path(), None, 0.0)
    for beyond in (FleetOptions(port_base=LAST_BASE + 1), FleetOptions(amqp_port=LAST_AMQP + 1)):
        with pytest.raises(UsageError):
            plan_fleet(beyond, Path(), None, 0.0)


def test_the_ports_are_those_of_the_fleet_s_services_and_its_broker() -> None:
    options = FleetOptions()
    planned = plan_fleet(options, Path(), None, 0.0)

    assert ports_of(options.port_base, options.amqp_port) == sorted(
        {*(port for port in planned.ports if options.port_base <= port < options.port_base + 100), options.amqp_port},
        key=lambda port: (port == options.amqp_port, port),
    )
