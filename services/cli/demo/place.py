"""The demo's own place: all it writes lies in `.ratchet/demo` (or `demo-real`, `demo-tools`), which each makes anew.

So a demo tells the same story each time, and the logs and adapters of a real fleet never meet those of a demo. Of the
environment only the broker and the log level reach the demo's fleet; a broker that others use too gets its queues off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ratchet.adapters.publish import remove_tree
from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.topology import BROADCAST_EXCHANGE, DEAD_EXCHANGE, EXCHANGE, UNROUTABLE_EXCHANGE, fleet_topology
from services.cli.fleet.folder import FleetFolder, write_settings

PREFIX = "RATCHET_"
FROM_OUTSIDE = ("RATCHET_AMQP_URL", "RATCHET_LOG_LEVEL")
QUICK = {
    "RATCHET_TRAIN_AFTER_GROUPS": "0",
    "RATCHET_EXPERIMENT_MAX_UNITS": "1000",
    "RATCHET_EXPERIMENT_MIN_AGE_S": "0",
}
"""What makes the loop quick on tasks of five letters; what a promotion must prove is as in any fleet."""


@dataclass(frozen=True, slots=True)
class DemoPlace:
    root: Path

    @classmethod
    def here(cls, name: str = "demo") -> DemoPlace:
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
    def result(self) -> Path:
        """Of the real demo: before and after; the picture lies beside it as .svg."""
        return self.root / "result.html"

    @property
    def programs(self) -> Path:
        """Of the tools demo in sandboxes: the file of the runner's programs."""
        return self.root / "programs.toml"

    @property
    def settings_file(self) -> Path:
        """For a shell to read: after it every `ratchet` command looks at the demo's fleet."""
        return FleetFolder(self.root).settings_file

    def settings(self, namespace: str) -> dict[str, str]:
        """Where everything is, as environment variables. `namespace` keeps it apart on a broker it shares."""
        return {
            "RATCHET_STATE_DIR": str(self.root),
            "RATCHET_LOGS_DIR": str(self.logs),
            "RATCHET_ADAPTERS_DIR": str(self.adapters),
            "RATCHET_NAMESPACE": namespace,
        }

    def make_anew(self, namespace: str) -> None:
        """Nothing of an earlier demo is left. Its fleet must be down."""
        remove_tree(self.root)
        self.adapters.mkdir(parents=True)
        write_settings(self.settings_file, self.settings(namespace))


@contextmanager
def only(settings: Mapping[str, str], environment: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Within the block these are the only settings of ours, besides the few FROM_OUTSIDE."""
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
    """With whatever is in them. Raises BusError."""
    topology = fleet_topology(agents, external_scorer=True)
    rungs = [rung.name for rung in topology.rungs]
    exchanges = (EXCHANGE, BROADCAST_EXCHANGE, DEAD_EXCHANGE, UNROUTABLE_EXCHANGE, *rungs)
    with open_connection(amqp_url) as connection:
        channel = connection.channel()
        for queue in (*topology.names, *rungs):
            channel.queue_delete(namespace + queue)
        for exchange in exchanges:
            channel.exchange_delete(namespace + exchange)
