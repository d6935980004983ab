"""Where ports are taken, what was typed is said again with ports that are free."""

from __future__ import annotations

import shlex
import socket
import subprocess

import pytest

from services.cli.fleet.options import FleetOptions
from services.cli.fleet.ports import STEP, on_other_ports
from services.cli.terminal import UsageError
from tests.private_broker import free_port
from tests.programs import REPOSITORY


def test_what_was_typed_is_said_again_on_the_next_ports_that_are_free() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        taken, free = listener.getsockname()[1], free_port()
        options = FleetOptions(port_base=7000, amqp_port=6000)
        ports = {7000 + STEP: [free, taken], 7000 + 2 * STEP: [free]}

        said = on_other_ports(
            options,
            lambda moved: ports[moved.port_base],
            ["demo", "--real", "--port-base", "7000", "--amqp-port=6000", "--seed", "2"],
            {},
        )

    assert said == f"ratchet demo --real --seed 2 --port-base {7000 + 2 * STEP} --amqp-port {6000 + 2 * STEP}"


@pytest.mark.parametrize("options", ["", "--real", "--agent", "--tools", "--tools --sandboxed"])
def test_whoever_typed_make_gets_make_s_command_and_make_does_that(options: str) -> None:
    typed = ["demo", *options.split()]

    said = on_other_ports(FleetOptions(), lambda _: [free_port()], typed, {"MAKELEVEL": "1"})

    command, _, meant = said.partition(" (which is ")
    dry = [*shlex.split(command), "--dry-run", "--no-print-directory", "--old-file=.venv/ready"]
    done = subprocess.run(dry, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    words = done.splitlines()[-1].replace(" --seed 1", "")
    assert words == f".venv/bin/{meant.removesuffix(')')}"


def test_where_there_are_no_others_the_numbers_are_left_to_the_reader() -> None:
    def none_left(options: FleetOptions) -> list[int]:
        raise UsageError("--port-base must be between …")

    assert on_other_ports(FleetOptions(), none_left, ["up"], {}) == "ratchet up --port-base N --amqp-port N"
