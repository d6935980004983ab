"""The hops as one writes them with Celery: a chain of tasks, acks late, quorum queues, publisher confirms.

The last link of the chain is a task that no worker runs: its message in `results` is what the client reads.
"""

from __future__ import annotations

import sys

from celery import Celery, chain
from kombu import Queue

from bench.pipeline.hops import PREFETCH, QUEUES, THREADS, Wiring, arguments

wiring = Wiring.read()
app = Celery("echo", broker=wiring.url)
app.conf.update(
    task_queues=[
        Queue(wiring.namespace + name, routing_key=wiring.namespace + name, queue_arguments=arguments(name))
        for name in QUEUES
    ],
    task_create_missing_queues=False,
    task_default_queue=wiring.namespace + QUEUES[0],
    task_acks_late=True,
    task_ignore_result=True,
    broker_transport_options={"confirm_publish": True},
    broker_pool_limit=THREADS,
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=PREFETCH.get(wiring.role, THREADS) // THREADS,
    worker_hijack_root_logger=False,
)


@app.task(name="forward")
def forward(body: str) -> str:
    return body


def send(body: bytes) -> None:
    """Publish one task: a chain over all queues."""
    first, *rest = (wiring.namespace + name for name in QUEUES)
    links = [forward.s(body.decode()).set(queue=first), *(forward.s().set(queue=name) for name in rest)]
    chain(*links).apply_async()


if __name__ == "__main__":
    sources = ",".join(source for source, _ in wiring.hops)
    sys.exit(
        app.worker_main(
            ["worker", f"--queues={sources}", "--pool=threads", f"--concurrency={THREADS}", "--loglevel=WARNING",
             f"--hostname={wiring.namespace}{wiring.role}@%h", "--without-gossip", "--without-mingle"]
        )
    )  # fmt: skip
