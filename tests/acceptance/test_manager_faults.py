"""A job whose manager, broker and orchestrator are killed: each of its tasks is answered once, and paid for once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.cli.fleet.local_broker import server_folder
from services.manager.database import Database
from services.manager.log_check import TenantCheck, check
from tests.acceptance.brokers import mortal_broker
from tests.acceptance.chat_model import chat_model
from tests.acceptance.fleet import ORCHESTRATOR, Fleet, Member
from tests.private_broker import free_port
from tests.waiting import wait_until

PRICES = 'currency = "EUR"\n[agents.small]\nprompt = 3\nsampled = 7\nsamples = 1\nmax_tokens = 8\n'

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(server_folder() is None, reason="kills its broker, so it needs a private RabbitMQ node"),
]


def manager_of(fleet: Fleet, port: int | None = None) -> Member:
    port = port or free_port()
    environment = {
        **fleet[ORCHESTRATOR].environment,
        "RATCHET_MANAGER_HTTP_PORT": str(port),
        "RATCHET_MANAGER_DB": f"sqlite:///{fleet.folder}/jobs.sqlite",
    }
    return Member("manager", "services.manager", port, environment, fleet.folder / "manager.log")


def ask(manager: Member, path: str) -> Any:
    status, body = manager.get(path)
    return json.loads(body) if status == 200 else None


def ended(manager: Member) -> int:
    job = ask(manager, "/v1/jobs/j")
    return job["tasks"] - job["waiting"] - job["released"] if job else 0


def results(manager: Member) -> Iterator[dict[str, Any]]:
    cursor = ""
    while True:
        page = ask(manager, f"/v1/jobs/j/results?limit=200{cursor}")
        yield from page["items"]
        if page["next"] is None:
            return
        cursor = f"&cursor={page['next']}"


@pytest.mark.parametrize("count", [600, pytest.param(2_000, marks=pytest.mark.long)])
def test_each_task_of_a_job_is_answered_once_whoever_is_killed(tmp_path: Path, count: int) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES)
    with mortal_broker(tmp_path / "broker") as broker, chat_model() as model:
        environment = {**model, "RATCHET_PRICES": str(prices)}
        fleet = Fleet(tmp_path, broker.url, forked=True, environment=environment).start()
        manager = manager_of(fleet)
        try:
            # given a manager that dies between marking tasks as released and publishing them
            manager.start({"RATCHET_FAILPOINT": "tasks-released:3"})
            manager.wait_until_ready()
            tasks = [{"input": f"sort: {n}", "task_id": f"own-{n}"} for n in range(count)]
            answer = httpx.post(f"http://127.0.0.1:{manager.port}/v1/jobs", json={"job_id": "j", "tasks": tasks})
            assert answer.status_code == 200, answer.text
            wait_until(lambda: manager.exit_code is not None, "the end of the first manager")

            # when it and others are killed, each after a further share of the answers
            for number, victim in enumerate(["manager", "broker", ORCHESTRATOR, "manager", "broker"], start=1):
                if manager.exit_code is not None:
                    manager.start()
                    manager.wait_until_ready()
                wait_until(lambda: ended(manager) > count * number / 7, f"share {number}", timeout_s=300)  # noqa: B023
                if victim == "broker":
                    broker.kill()
                    broker.start()
                else:
                    member = manager if victim == "manager" else fleet[ORCHESTRATOR]
                    member.kill()
                    member.start()
            wait_until(lambda: (ask(manager, "/v1/jobs/j") or {}).get("state") == "done", "the job", timeout_s=600)

            # then each task has one answer, its own
            found = list(results(manager))
            assert Counter(one["own_id"] for one in found) == Counter(f"own-{n}" for n in range(count))
            assert {one["state"] for one in found} == {"ok"}
            assert sorted(one["place"] for one in found) == list(range(1, count + 1))
            assert all(str(one["n"]) in one["result"]["response"] for one in found)

            # and the fleet ran each once
            logged = [json.loads(line) for line in (fleet.logs / "assignments.jsonl").read_text().splitlines()]
            assert Counter(one["task_id"] for one in logged) == Counter(f"j/{n}" for n in range(count))

            # and the log says to the unit what was paid
            words = [f"sort: {n}" for n in range(count)]
            cost = sum(3 * len(one.split()) + 7 * (1 + len(one) % 7) for one in words)
            with Database(manager.environment["RATCHET_MANAGER_DB"]).beside() as connection:
                found = check(connection, fleet.logs)
            assert found == {"default": TenantCheck(spent=cost, in_log=cost, tasks=count)}
        finally:
            if manager.process is not None and manager.exit_code is None:
                manager.kill()
            fleet.stop()
