"""Finds what to type where ports are taken: the command that was typed, on ports that are free."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from services.cli.fleet.options import FleetOptions
from services.cli.fleet.ports import is_taken
from services.cli.terminal import UsageError

STEP = 100
PORT_BASE, AMQP_PORT = "--port-base", "--amqp-port"
DEMOS = ("--real", "--tools", "--sandboxed")
"""By which option of `ratchet demo` a target of make is called; the last one typed is its name."""
PortsOf = Callable[[FleetOptions], Iterable[int]]


def on_other_ports(
    options: FleetOptions, ports_of: PortsOf, typed: Sequence[str], environment: Mapping[str, str]
) -> str:
    """A sentence part. `ports_of`: what a fleet of these options listens on, or UsageError; `typed`: behind `ratchet`.

    Of a demo that make started the sentence has make's command too.
    """
    free = _free(options, ports_of)
    base, amqp = (str(free.port_base), str(free.amqp_port)) if free else ("N", "N")
    command = shlex.join(["ratchet", *_without_ports(typed), PORT_BASE, base, AMQP_PORT, amqp])
    if "demo" in typed and "MAKELEVEL" in environment:
        target = "-".join(["demo", *[word[2:] for word in DEMOS if word in typed][-1:]])
        return f"make {target} PORT_BASE={base} AMQP_PORT={amqp} (which is {command})"
    return command


def _free(options: FleetOptions, ports_of: PortsOf) -> FleetOptions | None:
    """The same options on the next ports on which nobody listens; None where there are none."""
    moved = options
    while True:
        moved = replace(moved, port_base=moved.port_base + STEP, amqp_port=moved.amqp_port + STEP)
        try:
            if not any(map(is_taken, ports_of(moved))):
                return moved
        except UsageError:
            return None


def _without_ports(typed: Sequence[str]) -> list[str]:
    kept, words = [], iter(typed)
    for word in words:
        if word in (PORT_BASE, AMQP_PORT):
            next(words, None)
        elif not word.startswith((f"{PORT_BASE}=", f"{AMQP_PORT}=")):
            kept.append(word)
    return kept
