"""A fleet that one command starts for itself and stops at its end, as `ratchet demo` and `ratchet try` do.

All it writes lies in a folder that is made anew, so its logs and adapters never meet those of the user's fleet. Of the
environment only the broker and the log level reach it. From a broker that others use too its queues are deleted again.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ratchet.adapters.publish import remove_tree
from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.topology import BROADCAST_EXCHANGE, DEAD_EXCHANGE, EXCHANGE, UNROUTABLE_EXCHANGE, fleet_topology
from schemas.messages.task import Task
from services.cli.fleet.folder import FleetFolder, FleetRecord, write_settings
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.start import make_way, start_fleet, stop_fleet
from services.cli.terminal import say


def noting_references(tasks: Iterable[Task], record: FleetRecord | None) -> Iterator[Task]:
    """The tasks; at the first with a reference that no scorer of the fleet looks at that is said, once."""
    said = False
    for task in tasks:
        if not said and task.reference is not None and (note := unused_reference(record)):
            said = True
            say(note)
        yield task


def unused_reference(record: FleetRecord | None) -> str | None:
    """A sentence where neither scorer nor auditor looks at references."""
    if record is None or record.options.no_scorer:
        return None
    scorers = [text for text in (record.options.scorer, record.options.auditor) if text]
    if any(map(_looks_at_references, scorers)):
        return None
    return (
        f"note: scorer `{record.options.scorer}` does not look at the reference; "
        "`ratchet up --scorer verifier:exact` does"
    )


def _looks_at_references(scorer: str) -> bool:
    specification: Any = import_module("services.scorer.spec")  # where scorers say so; loads none of them
    return bool(specification.parse_spec(scorer).looks_at_references)


PREFIX = "RATCHET_"
FROM_OUTSIDE = ("RATCHET_AMQP_URL", "RATCHET_LOG_LEVEL")


@dataclass(frozen=True, slots=True)
class FleetPlace:
    """The folder of such a fleet, with all that it writes."""

    root: Path

    @classmethod
    def here(cls, name: str) -> FleetPlace:
        return cls(FleetFolder.here().root / name)

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def adapters(self) -> Path:
        return self.root / "adapters"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def settings_file(self) -> Path:
        """A file for a shell to read: after it every `ratchet` command looks at this fleet."""
        return FleetFolder(self.root).settings_file

    def settings(self, namespace: str) -> dict[str, str]:
        """Return where everything is, as environment variables. `namespace` keeps it apart on a broker it shares."""
        return {
            "RATCHET_STATE_DIR": str(self.root),
            "RATCHET_LOGS_DIR": str(self.logs),
            "RATCHET_ADAPTERS_DIR": str(self.adapters),
            "RATCHET_NAMESPACE": namespace,
        }

    def make_anew(self, namespace: str) -> None:
        """Remove what an earlier fleet left here. That fleet must be down."""
        remove_tree(self.root)
        self.adapters.mkdir(parents=True)
        write_settings(self.settings_file, self.settings(namespace))


def require_place(place: FleetPlace, options: FleetOptions) -> None:
    """Stop the fleet that an earlier run left up. Raises CommandError where a port is taken by somebody else."""
    with only(place.settings("")):
        make_way(options, os.environ.get("RATCHET_AMQP_URL"))


@contextmanager
def fleet_of_its_own(
    place: FleetPlace,
    options: FleetOptions,
    settings: Mapping[str, str],
    timeout_s: float,
    *,
    prepare: Callable[[str], None] = lambda namespace: None,
    keep: bool = False,
) -> Iterator[None]:
    """Run the fleet within the block, with no settings but these; stop it after, unless it is kept.

    `prepare` gets the namespace, and may write files that the fleet reads at its start. Raises as `start_fleet`.
    """
    amqp_url = os.environ.get("RATCHET_AMQP_URL")
    namespace = f"{place.root.name}-{uuid.uuid4().hex[:8]}." if amqp_url else ""
    with only(place.settings(namespace) | dict(settings)):
        place.make_anew(namespace)
        prepare(namespace)
        start_fleet(options, amqp_url, timeout_s, insist=False)
        try:
            yield
        finally:
            if not keep:
                stop_fleet()
                if amqp_url:
                    delete_queues(amqp_url, namespace, options.agents)


@contextmanager
def only(settings: Mapping[str, str], environment: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Have no settings of ours within the block but these and the few FROM_OUTSIDE."""
    before = {name: value for name, value in environment.items() if name.startswith(PREFIX)}
    kept = {name: value for name, value in before.items() if name in FROM_OUTSIDE}
    _replace(environment, kept | dict(settings))
    try:
        yield
    finally:
        _replace(environment, before)


def _replace(environment: MutableMapping[str, str], settings: Mapping[str, str]) -> None:
    for name in [name for name in environment if name.startswith(PREFIX)]:
        del environment[name]
    environment.update(settings)


def delete_queues(amqp_url: str, namespace: str, agents: tuple[str, ...]) -> None:
    """Delete the fleet's queues and exchanges, with all that is in them. Raises BusError."""
    topology = fleet_topology(agents, external_scorer=True, programs=True)
    rungs = [rung.name for rung in topology.rungs]
    exchanges = (EXCHANGE, BROADCAST_EXCHANGE, DEAD_EXCHANGE, UNROUTABLE_EXCHANGE, *rungs)
    with open_connection(amqp_url) as connection:
        channel = connection.channel()
        for queue in (*topology.names, *rungs):
            channel.queue_delete(namespace + queue)
        for exchange in exchanges:
            channel.exchange_delete(namespace + exchange)
