"""The names of RabbitMQ's metrics that our rules and panels ask for are those a real node exports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.infra.exported_metrics import FOREIGN
from tests.infra.measured_broker import MeasuredBroker


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
