"""Agents that come and go while a fleet of processes works: nothing is restarted, and no task is lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from demos.toy.byte_tokenizer import byte_tokenizer
from tests.acceptance.fleet import Fleet, Member
from tests.acceptance.test_manager_faults import manager_of
from tests.private_broker import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

CODE = """
import json, os, sys, urllib.request
body = json.dumps({"model": "any", "messages": [{"role": "user", "content": sys.stdin.read()}]}).encode()
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
print("NAME", json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""
LIMITS = {"seconds": 60, "memory_mb": 256, "disk_mb": 8, "processes": 24}


class Managing:
    """The fleet, its manager, and the manager's API."""

    def __init__(self, fleet: Fleet, manager: Member) -> None:
        self.fleet, self.manager = fleet, manager
        self.api = httpx.Client(base_url=f"http://127.0.0.1:{manager.port}", timeout=60.0, trust_env=False)

    def pids(self) -> dict[str, int]:
        return {member.name: member.pid for member in (*self.fleet, self.manager)}

    def register(self, name: str, **rules: Any) -> None:
        data = {"/agent/main.py": CODE.replace("NAME", name)}
        program = {"command": ["python3", "-I", "-S", "/agent/main.py"], "data": data, "limits": LIMITS}
        answer = self.api.post("/v1/agents", json={"name": name, "program": program, **rules})
        assert answer.status_code == 201, answer.text

    def submit(self, job_id: str, agent: str, count: int = 1) -> None:
        tasks = [{"input": f"sort: {n}"} for n in range(count)]
        answer = self.api.post("/v1/jobs", json={"job_id": job_id, "agent_id": agent, "tasks": tasks, "samples": 1})
        assert answer.status_code == 200, answer.text

    def job(self, job_id: str) -> Any:
        return self.api.get(f"/v1/jobs/{job_id}").json()

    def answers(self, job_id: str) -> list[str]:
        items = self.api.get(f"/v1/jobs/{job_id}/results", params={"limit": 200}).json()["items"]
        return [one["result"]["response"].strip() for one in items if one["state"] == "ok"]


@pytest.fixture(scope="module")
def managing(start_fleet: Callable[..., Fleet], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managing]:
    tokenizer = tmp_path_factory.mktemp("tokenizer")
    byte_tokenizer(8192).save_pretrained(tokenizer)
    Path(tokenizer, "config.json").write_text("{}")
    port = free_port()
    environment = {
        "RATCHET_MANAGER_URL": f"http://127.0.0.1:{port}",
        "RATCHET_AGENT_TOKENIZER": str(tokenizer),
        "RATCHET_SANDBOX_RUNS_AT_ONCE": "4",
    }
    fleet = start_fleet(environment=environment)
    manager = manager_of(fleet, port=port)
    manager.start()
    manager.wait_until_ready()
    try:
        yield Managing(fleet, manager)
    finally:
        manager.kill()


def test_a_new_agent_answers_without_a_restart_of_any_process(managing: Managing) -> None:
    before = managing.pids()
    managing.register("quick")
    managing.submit("quick", "quick")
    wait_until(lambda: managing.job("quick")["state"] == "done", "the answer", timeout_s=60)
    assert managing.answers("quick") == ["quick sort: 0"]
    assert managing.pids() == before


@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.long)])
def test_agents_come_and_go_under_load_and_no_task_is_lost(managing: Managing, count: int) -> None:
    # given an agent that has work all the time
    managing.register("steady")
    managing.submit("steady", "steady", 2 * count)

    # when others are registered, given a job each, and removed at once
    names = [f"passing-{count}-{number}" for number in range(count)]
    for name in names:
        managing.register(name)
        managing.submit(name, name, 2)
        assert managing.api.delete(f"/v1/agents/{name}").status_code == 200
    jobs = [*names, "steady"]
    wait_until(lambda: all(managing.job(one)["state"] == "done" for one in jobs), "all jobs", timeout_s=600)

    # then each task has one answer, its own agent's
    for name in names:
        assert sorted(managing.answers(name)) == [f"{name} sort: {n}" for n in range(2)]
    assert Counter(managing.answers("steady")) == Counter(f"steady sort: {n}" for n in range(2 * count))
    lines = [json.loads(one) for one in (managing.fleet.logs / "agent_interactions.jsonl").read_text().splitlines()]
    assert {one["registered_agent"] for one in lines} >= {*names, "steady"}
    managing.api.delete("/v1/agents/steady")
