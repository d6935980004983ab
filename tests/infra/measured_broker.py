"""A private RabbitMQ node with the plugin rabbitmq_prometheus, as every broker of a monitored fleet has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.request import urlopen

from tests.private_broker import PrivateBroker, free_port
from tests.waiting import wait_until


@dataclass(frozen=True)
class MeasuredBroker(PrivateBroker):
    metrics_port: int = field(default_factory=free_port)

    def prepare(self) -> None:
        super().prepare()
        (self.folder / "enabled_plugins").write_text("[rabbitmq_prometheus].\n")
        with (self.folder / "rabbitmq.conf").open("a") as configuration:
            configuration.write(f"prometheus.tcp.ip = 127.0.0.1\nprometheus.tcp.port = {self.metrics_port}\n")

    def metrics(self, page: str = "/metrics") -> str:
        def served() -> str | None:
            try:
                with urlopen(f"http://127.0.0.1:{self.metrics_port}{page}", timeout=5) as answer:
                    return str(answer.read().decode())
            except OSError:
                return None

        return str(wait_until(served, f"the broker's metrics; see {self.folder / 'console.log'}"))
