"""A client that is killed, on a broker and an orchestrator that are killed: each task has one Result in its file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ratchet.client import Fleet as Client
from schemas.messages.task import Task
from services.cli.fleet.local_broker import server_folder
from tests.acceptance.brokers import mortal_broker
from tests.acceptance.fleet import ORCHESTRATOR, REPOSITORY, Fleet
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(server_folder() is None, reason="kills its broker, so it needs a private RabbitMQ node"),
]

PROGRAM = """
import sys
from ratchet.client import Fleet

url, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
tasks = ({"task_id": f"order-{n}", "input": f"sort: {n}"} for n in range(count))
with Fleet(url, stall_s=120, most_open=200) as fleet, open(path, "a") as file:
    for result in fleet.batch(tasks):
        file.write(result.encode().decode() + "\\n")
        file.flush()
"""
"""An application that keeps its Results."""


def stored(path: Path) -> list[str]:
    """Ids of the Results in the file; a line that a kill cut counts as none."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["task_id"] for line in lines if line.endswith(b"\n")]


@pytest.mark.parametrize("count", [600, pytest.param(10_000, marks=pytest.mark.long)])
def test_each_task_has_one_result_whoever_is_killed(tmp_path: Path, count: int) -> None:
    path, answers = tmp_path / "results.jsonl", Counter[str]()
    with mortal_broker(tmp_path / "broker") as broker:
        fleet = Fleet(tmp_path, broker.url, forked=True).start()
        try:
            # given an application that is killed after a fifth
            first = subprocess.Popen([sys.executable, "-c", PROGRAM, broker.url, path, str(count)], cwd=REPOSITORY)
            wait_until(lambda: len(stored(path)) > count / 5, "a fifth of the Results", timeout_s=300)
            first.kill()
            first.wait()
            before = stored(path)

            # when another asks what has no Result, while the orchestrator and the broker are killed
            missing = {f"order-{n}" for n in range(count)} - set(before)
            asked = [Task(task_id=task_id, input=f"sort: {task_id[6:]}") for task_id in sorted(missing)]
            with Client(broker.url, stall_s=300, most_open=200) as client:
                for number, result in enumerate(client.batch(asked)):
                    answers[result.task_id] += 1
                    if number == len(asked) // 3:
                        fleet[ORCHESTRATOR].kill()
                        fleet[ORCHESTRATOR].start()
                    if number == 2 * len(asked) // 3:
                        broker.kill()
                        broker.start()

                # then each has one
                assert client.progress == (len(asked), len(asked), 0)
            assert answers == Counter(missing)
            assert Counter(before) == Counter(set(before))
        finally:
            fleet.stop()


def test_it_asks_over_http_alike(tmp_path: Path, amqp_url: str, namespace: str) -> None:
    with_orchestrator = Fleet(tmp_path, amqp_url, namespace=namespace, forked=True).start()
    url = f"http://127.0.0.1:{with_orchestrator[ORCHESTRATOR].port}"
    try:
        with Client(url, stall_s=120) as client:
            tasks = [Task(task_id=f"t{n}", input=f"sort: {n}") for n in range(100)]
            answered = Counter(result.task_id for result in client.batch(tasks))
            feedback_id = client.feedback("t1", score=1)
            (refused,) = client.batch([Task(task_id="t-refused", input="a", agent_id="nobody")])
    finally:
        with_orchestrator.stop()

    assert answered == Counter(f"t{n}" for n in range(100))
    assert feedback_id
    assert (refused.status, "nobody" in str(refused.reason)) == ("failed", True)
