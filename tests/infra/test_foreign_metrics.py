"""The names of RabbitMQ's metrics that our rules and panels ask for are those a real node exports."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
import yaml

from ratchet.bus.topology import RESPONSES, fleet_topology
from tests.infra.exported_metrics import FOREIGN, ROOT
from tests.infra.measured_broker import MeasuredBroker
from tests.waiting import wait_until

READY_BYTES = "rabbitmq_detailed_queue_messages_ready_bytes"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredBroker]:
    broker = MeasuredBroker.on_free_ports(tmp_path_factory.mktemp("rabbitmq"))
    node = broker.start()
    try:
        broker.wait_until_ready(node)
        yield broker
    finally:
        broker.stop(node)


@pytest.mark.broker
def test_rabbitmq_exports_what_we_ask_it_for(broker: MeasuredBroker) -> None:
    scraped = broker.metrics()
    exported = {line.split("{")[0].split(" ")[0] for line in scraped.splitlines() if not line.startswith("#")}

    wanted = {name for name in FOREIGN if name.startswith("rabbitmq_")} - {READY_BYTES}

    assert wanted
    assert wanted - exported == set()


@pytest.mark.broker
def test_the_bound_in_bytes_is_of_what_rabbitmq_counts_as_ready(broker: MeasuredBroker) -> None:
    """Messages that a consumer has in hand leave room: the alert must not count them."""
    jobs = yaml.safe_load((ROOT / "infra/prometheus/prometheus.yml").read_text())["scrape_configs"]
    (job,) = [one for one in jobs if one["job_name"] == "rabbitmq-queues"]
    page = f"{job['metrics_path']}?family={job['params']['family'][0]}"
    arguments = fleet_topology(("small",), broker_disk=10**6).queue(RESPONSES).arguments

    def shown() -> dict[str, int]:
        lines = [line for line in broker.metrics(page).splitlines() if line.startswith(READY_BYTES)]
        return {line.split('queue="')[1].split('"')[0]: int(line.split()[-1]) for line in lines}

    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("blue.responses", durable=True, arguments=arguments)

        def fill() -> int:
            for count in range(1000):
                try:
                    channel.basic_publish("", "blue.responses", b"x" * 1000)
                except pika.exceptions.NackError:
                    return count
            raise AssertionError("it took a megabyte")

        assert 0 <= fill() * 1000 - arguments["x-max-length-bytes"] <= 1000
        wait_until(lambda: shown().get("blue.responses") == 81_000, "all of it is ready")
        for _ in range(40):
            channel.basic_get("blue.responses")
        wait_until(lambda: shown()["blue.responses"] == 41_000, "what is in hand is not")
        assert fill() == 40
