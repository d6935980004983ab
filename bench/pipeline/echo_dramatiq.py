"""The hops as one writes them with Dramatiq: an actor per queue that sends to the next, publisher confirms on.

Dramatiq has no option for quorum queues: its queues are classic and durable. The actor of `results` runs nowhere: its
message is what the client reads.
"""

from __future__ import annotations

import sys

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from bench.pipeline.hops import QUEUES, THREADS, Wiring

wiring = Wiring.read()
dramatiq.set_broker(RabbitmqBroker(url=wiring.url, confirm_delivery=True))


def actor(queue: str, onward: dramatiq.Actor[[str], None] | None) -> dramatiq.Actor[[str], None]:
    def forward(body: str) -> None:
        if onward is not None:
            onward.send(body)

    return dramatiq.actor(forward, actor_name=queue, queue_name=queue)


first: dramatiq.Actor[[str], None] | None = None
for name in reversed(QUEUES):
    first = actor(wiring.namespace + name, first)


def send(body: bytes) -> None:
    """Publish one task."""
    assert first is not None
    first.send(body.decode())


def declare_results() -> None:
    """Dramatiq declares a queue when somebody consumes or sends; the client wants to read this one before."""
    broker = RabbitmqBroker(url=wiring.url)
    broker.declare_queue(wiring.namespace + QUEUES[-1], ensure=True)
    broker.close()


if __name__ == "__main__":
    from dramatiq.cli import main, make_argument_parser

    declare_results()
    sources = [source for source, _ in wiring.hops]
    arguments = ["bench.pipeline.echo_dramatiq", "--processes=1", f"--threads={THREADS}", "--queues", *sources]
    sys.exit(main(make_argument_parser().parse_args(arguments)))
