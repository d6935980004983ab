"""A foreign trainer: it takes a TrainRequest, publishes a made-up adapter, and reports it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pika

from ratchet.adapters.folder import adapter_sha256
from schemas.messages.training import AdapterTrained, TrainRequest
from schemas.records.adapter_card import DataWindow
from tests.acceptance.fleet import Fleet
from tests.ratchet.adapters.making_adapters import published

LOOK_EVERY_S = 0.1
COUNTS = {"groups": 64, "no_spread": 3}
STEPS = [{"step": step, "loss": -0.01 * step, "reward": 0.3 + 0.1 * step} for step in range(1, 5)]


@contextmanager
def foreign_trainer(fleet: Fleet, *, refuses: str | None = None) -> Iterator[list[TrainRequest]]:
    """Run the trainer within the block; yield the requests that it took. `refuses`: why it refuses all."""
    heard: list[TrainRequest] = []
    done = threading.Event()
    thread = threading.Thread(target=_work, args=(fleet, refuses, heard, done))
    thread.start()
    try:
        yield heard
    finally:
        done.set()
        thread.join()


def _work(fleet: Fleet, refuses: str | None, heard: list[TrainRequest], done: threading.Event) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(fleet.amqp_url))
    channel = connection.channel()
    for method, _, body in channel.consume(fleet.namespace + "training", inactivity_timeout=LOOK_EVERY_S):
        if done.is_set():
            break
        if method is None:
            continue
        request = TrainRequest.decode(body)
        heard.append(request)
        answer = _refused(request, refuses) if refuses else _trained(fleet, request, seed=len(heard))
        channel.basic_publish("", fleet.namespace + "adapters", answer.encode())
        channel.basic_ack(method.delivery_tag)
    connection.close()


def _trained(fleet: Fleet, request: TrainRequest, seed: int) -> AdapterTrained:
    folder = published(
        fleet.folder / "adapters",
        request.agent_id,
        seed=seed,
        run_id=request.request_id,
        data=DataWindow(groups=64, samples=128),
        metrics={"seconds": 1.5, "steps": 4},
        beside={"training_report.json": json.dumps({"data": {"counts": COUNTS}, "steps": STEPS}).encode()},
    )
    return AdapterTrained(
        request_id=request.request_id,
        agent_id=request.agent_id,
        status="trained",
        adapter_version=folder.name,
        adapter_sha256=adapter_sha256(folder),
    )


def _refused(request: TrainRequest, reason: str) -> AdapterTrained:
    return AdapterTrained(request_id=request.request_id, agent_id=request.agent_id, status="refused", reason=reason)
