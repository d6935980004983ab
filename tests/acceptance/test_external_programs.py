"""A fleet on one machine whose agent and scorer are somebody else's: the Node programs of examples/node-client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from ratchet.logs.reader import read_json
from services.cli.fleet.local_broker import server_folder
from tests.acceptance.node_programs import node, running  # noqa: F401  (a fixture)
from tests.acceptance.ratchet_command import Ratchet, StartingRatchet
from tests.acceptance.test_up_down import free_amqp_port, free_base, processes_of
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(300),
    pytest.mark.skipif(server_folder() is None, reason="RabbitMQ is not installed here, so none can be started"),
]
TASKS = 200


@pytest.fixture(scope="module")
def ratchet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ratchet]:
    """In a folder where such a fleet is up; it is down afterwards."""
    ratchet = StartingRatchet(tmp_path_factory.mktemp("external"))
    ports = ["--port-base", str(free_base()), "--amqp-port", str(free_amqp_port())]
    try:
        ran = ratchet("up", "--agents", "", "--external-agents", "node", "--no-scorer", *ports)
        assert ran.code == 0, ran.err
        yield ratchet
    finally:
        ratchet("down")
    assert processes_of(ratchet.folder) == []


def record_of(ratchet: Ratchet) -> Any:
    return json.loads((ratchet.folder / ".ratchet" / "fleet.json").read_text())


def depths(amqp_url: str, *queues: str) -> dict[str, int]:
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    found = {queue: channel.queue_declare(queue, passive=True).method.message_count for queue in queues}
    connection.close()
    return found


def submit(amqp_url: str, numbers: range) -> None:
    """Each confirmed: of 197 without confirms, RabbitMQ 3.10 lost up to 172 when the connection closed behind them."""
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    for number in numbers:
        task = {"task_id": f"task-{number}", "input": f"sort: {number}ba", "reference": "".join(sorted(f"{number}ba"))}
        channel.basic_publish("", "tasks", json.dumps(task).encode())
    connection.close()


def logged(ratchet: Ratchet) -> list[dict[str, Any]]:
    return [record.value for record in read_json(ratchet.folder / "logs", "agent_interactions", dict)]


def test_only_what_is_ours_is_started_and_who_is_missing_is_said(ratchet: Ratchet) -> None:
    status = ratchet("status", "--json")

    assert status.json["healthy"], status.json["faults"]
    assert [service["name"] for service in status.json["services"]] == ["broker", "orchestrator"]
    assert [(one["name"], one["consumers"]) for one in status.json["external"]] == [("agent node", 0), ("scorer", 0)]


def test_what_it_was_started_with_is_remembered(ratchet: Ratchet) -> None:
    again = ratchet("up")

    assert again.code == 0
    assert "already up" in again.err
    assert record_of(ratchet)["options"]["external_agents"] == ["node"]
    assert record_of(ratchet)["options"]["no_scorer"] is True


def test_the_documented_agent_and_scorer_answer_every_task(ratchet: Ratchet, node: str, tmp_path: Path) -> None:  # noqa: F811
    url = record_of(ratchet)["amqp_url"]
    submit(url, range(1, 3))
    wait_until(lambda: depths(url, "work.node")["work.node"] == 2)
    missed = ratchet("status", "--json").json
    assert any("agent node is not working" in fault for fault in missed["faults"])

    with running(node, "agent.js", tmp_path, url), running(node, "scorer.js", tmp_path, url):
        submit(url, range(3, TASKS + 1))
        wait_until(lambda: depths(url, "results")["results"] == TASKS, timeout_s=90)
        connected = ratchet("status", "--json").json["external"]

    lines = logged(ratchet)
    assert {line["task_id"] for line in lines} == {f"task-{number}" for number in range(1, TASKS + 1)}
    assert {(line["status"], line["score"], line["scoring_agent_id"]) for line in lines} == {("ok", 1.0, "node-scorer")}
    assert depths(url, "dead-letters", "responses.draft", "rewards") == dict.fromkeys(
        ("dead-letters", "responses.draft", "rewards"), 0
    )
    assert [one["consumers"] for one in connected] == [1, 1]
