"""The names of RabbitMQ's metrics that our rules and panels ask for are those a real node exports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from services.cli.broker import LocalBroker, free_port
from tests.infra.exported_metrics import FOREIGN


@dataclass(frozen=True)
class MeasuredBroker(LocalBroker):
    """A private node with the plugin rabbitmq_prometheus."""

    metrics_port: int = field(default_factory=free_port)

    def prepare(self) -> None:
        super().prepare()
        (self.folder / "enabled_plugins").write_text("[rabbitmq_prometheus].\n")
        with (self.folder / "rabbitmq.conf").open("a") as configuration:
            configuration.write(f"prometheus.tcp.ip = 127.0.0.1\nprometheus.tcp.port = {self.metrics_port}\n")

    def metrics(self) -> str:
        deadline = time.monotonic() + 30
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as answer:
                    return str(answer.read().decode())
            except URLError:
                assert time.monotonic() < deadline, f"no metrics; see {self.folder / 'console.log'}"
                time.sleep(0.25)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = MeasuredBroker.on_free_ports(tmp_path_factory.mktemp("rabbitmq"))
    node = broker.start()
    try:
        broker.wait_until_ready(node)
        yield broker.metrics()
    finally:
        broker.stop(node)


@pytest.mark.broker
def test_rabbitmq_exports_what_we_ask_it_for(scraped: str) -> None:
    exported = {line.split("{")[0].split(" ")[0] for line in scraped.splitlines() if not line.startswith("#")}

    wanted = {name for name in FOREIGN if name.startswith("rabbitmq_")}

    assert wanted
    assert wanted - exported == set()
