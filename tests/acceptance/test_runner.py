"""A fleet of processes whose agent's tasks programs answer: unchanged clients, kills in the middle, leftovers."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from demos.toy.byte_tokenizer import byte_tokenizer
from tests.acceptance.fleet import AGENT, ORCHESTRATOR, RUNNER, Fleet
from tests.acceptance.ratchet_command import ForkedRatchet
from tests.packages import copy_packages
from tests.passable import passable_folder
from tests.processes import marked, sockets_elsewhere
from tests.programs import REPOSITORY
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

WITHIN_S = 240
MARK = "ratchet-acceptance-mark"

OPENAI = """
import os, sys
import openai
messages = [{"role": "user", "content": sys.stdin.read()}]
stream = openai.OpenAI().chat.completions.create(model="any", messages=messages, stream=True)
said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "again: " + said}]
print(openai.OpenAI().chat.completions.create(model="any", messages=messages).choices[0].message.content)
"""

COUNTED = """
import json, os, sys, time, urllib.request
def ask(text):
    body = json.dumps({"model": "any", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
for turn in range(int(os.environ["RATCHET_SAMPLE"]) * 3 + 1):
    said = ask(sys.stdin.read() or "done")
print(said, os.urandom(4).hex(), sys.argv[1])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With the file of programs and what they bind; below a folder that every user may pass."""
    with passable_folder() as place:
        (place / "agent").mkdir()
        for name, text in {"client.py": OPENAI, "counted.py": COUNTED}.items():
            (place / "agent" / name).write_text(text)
        copy_packages(place / "packages", ["openai"])
        (place / "programs.toml").write_text(f"""
[agents.small]
programs = ["client", "counted", "shell", "waits"]

[programs.client]
command = ["python3", "/agent/client.py"]
binds = {{ "/agent" = "agent", "/packages" = "packages" }}
environment = {{ PYTHONPATH = "/packages" }}

[programs.waits]
command = ["python3", "-c", "import signal; signal.pause()", "{MARK}"]

[programs.counted]
command = ["python3", "/agent/counted.py", "{MARK}"]
binds = {{ "/agent" = "agent" }}
""")
        yield place


@pytest.fixture(scope="module")
def fleet(start_fleet: Callable[..., Fleet], folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    tokenizer = tmp_path_factory.mktemp("tokenizer")
    byte_tokenizer(8192).save_pretrained(tokenizer)
    (tokenizer / "config.json").write_text("{}")
    return start_fleet(
        programs=folder / "programs.toml",
        environment={
            "RATCHET_AGENT_ECHO_LATENCY_S": "0.3",
            "RATCHET_AGENT_TOKENIZER": str(tokenizer),
            "RATCHET_SCORER": "verifier:exact",
            "RATCHET_SANDBOX_RUNS_AT_ONCE": "4",
        },
    )


class Asking:
    """Who types the command, for one fleet."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet = fleet
        settings = {
            "RATCHET_AMQP_URL": fleet.amqp_url,
            "RATCHET_NAMESPACE": fleet.namespace,
            "RATCHET_LOGS_DIR": str(fleet.logs),
        }
        self.folder = folder
        self.ratchet = ForkedRatchet(folder, settings)

    def submit(self, **task: Any) -> None:
        """Without waiting for the result."""
        (self.folder / "task.jsonl").write_text(json.dumps(task) + "\n")
        ran = self.ratchet("submit", "--file", "task.jsonl", "--no-wait", timeout_s=WITHIN_S)
        assert ran.code == 0, ran.err

    def get(self, path: str) -> Any:
        """Of the orchestrator's API."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.fleet[ORCHESTRATOR].port}/v1/{path}", timeout=30
        ) as answer:
            return json.load(answer)

    def lines(self, task_id: str) -> list[dict[str, Any]]:
        log = self.fleet.logs / "agent_interactions.jsonl"
        found = (json.loads(line) for line in log.read_text().splitlines()) if log.exists() else ()
        return [line for line in found if line["task_id"] == task_id]

    def logged(self, task_id: str, samples: int) -> list[dict[str, Any]]:
        def whole() -> list[dict[str, Any]]:
            found = self.lines(task_id)
            return found if len(found) >= samples else []

        return sorted(wait_until(whole, f"{task_id} is logged", WITHIN_S), key=lambda line: line["sample"])


@pytest.fixture
def asking(fleet: Fleet, tmp_path: Path) -> Asking:
    return Asking(fleet, tmp_path)


def test_an_unchanged_client_answers_tasks_in_a_sandbox_and_is_scored_and_logged(asking: Asking) -> None:
    asking.submit(task_id="client-1", input="hello", reference="again: hello", samples=2, programs=["client"])

    lines = asking.logged("client-1", 2)
    assert [(line["sample"], line["score"], line["sample_status"]) for line in lines] == [
        (0, 1.0, "finished"),
        (1, 1.0, "finished"),
    ]
    for line in lines:
        (segment,) = line["segments"]
        assert (line["program"], len(segment["spans"]), line["usage"]["calls"]) == ("client", 2, 2)
        assert (line["engine"], line["arm"]["adapter_version"], line["usage"]["breaks"]) == ("echo", "v1.0.0", {})


def test_the_programs_of_a_group_are_dealt_in_turn_and_one_comes_with_ratchet(asking: Asking) -> None:
    asking.submit(task_id="mixed-1", input="hi", samples=3, reference="hi")

    lines = asking.logged("mixed-1", 3)
    assert [line["program"] for line in lines] == ["client", "counted", "shell"]
    assert lines[2]["response"].endswith("hi"), "the echo of the whole conversation"
    assert [line["sample_status"] for line in lines] == ["finished"] * 3
    assert all(0 < line["usage"]["seconds"] < WITHIN_S for line in lines)

    def ended_rollouts() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = asking.get("rollouts?task_id=mixed-1")["items"]
        return items if [one["state"] for one in items] == ["finished"] * 3 else []

    rollouts = wait_until(ended_rollouts, "the runner tells how they ended", WITHIN_S)
    assert {one["program"]: one["calls"] for one in rollouts} == {
        line["program"]: line["usage"]["calls"] for line in lines
    }
    compared = {one["program"]: one for one in asking.get("programs")["items"]}
    assert {"client", "counted", "shell"} <= set(compared)
    assert compared["shell"]["ended"] == {"finished": 1}


async def test_the_runner_serves_its_tool_over_mcp(fleet: Fleet) -> None:
    async with Client(f"http://127.0.0.1:{fleet[RUNNER].port}/mcp") as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        answer = await client.call_tool(listed[0], {})

    assert listed == ["running_rollouts"]
    assert answer.structured_content is not None
    assert answer.structured_content["at_once"] == 4


def test_the_first_that_passes_ends_its_group_across_processes(asking: Asking) -> None:
    dealt = ["waits", "client", "waits"]
    given = {"input": "hello", "reference": "again: hello", "select": "first-passing", "samples": 3}
    asking.submit(task_id="first-1", **given, programs=dealt)

    lines = asking.logged("first-1", 3)
    assert [(line["program"], line["sample_status"], line["score"]) for line in lines] == [
        ("waits", "cancelled", None),
        ("client", "finished", 1.0),
        ("waits", "cancelled", None),
    ]
    assert [line["score_status"] for line in lines] == ["cancelled", "ok", "cancelled"]
    assert marked(MARK) == []
    told = asking.ratchet("result", "first-1", timeout_s=WITHIN_S)
    assert (told.code, "again: hello" in told.out) == (0, True)


def test_the_kill_of_the_runner_in_the_middle_runs_only_what_was_not_finished(asking: Asking) -> None:
    runner = asking.fleet[RUNNER]
    runner.kill()
    runner.start({"RATCHET_FAILPOINT": "rollout-kept:2"})
    asking.submit(task_id="killed-1", input="hi", samples=4, programs=["counted"])

    wait_until(lambda: runner.exit_code is not None, "the runner was killed", WITHIN_S)
    wait_until(lambda: marked(MARK) == [], "its programs died with it")
    kept = {
        int(path.stem): json.loads(path.read_text())["text"]
        for path in (runner_folder(runner)).rglob("rollouts/*/*.json")
    }
    assert len(kept) == 2
    runner.start()
    runner.wait_until_ready()

    lines = asking.logged("killed-1", 4)
    assert {number: lines[number]["response"] for number in kept} == kept
    assert len({line["response"] for line in lines}) == 4
    assert [line["sample_status"] for line in lines] == ["finished"] * 4
    wait_until(lambda: not list(runner_folder(runner).rglob("*.json")), "nothing is kept of what is answered")
    assert marked(MARK) == []


def test_the_kill_of_the_agent_costs_time_and_nothing_else(asking: Asking) -> None:
    asking.submit(task_id="killed-2", input="hi", samples=4, programs=["counted"])
    wait_until(lambda: len(marked(MARK)) >= 3, "the programs run", WITHIN_S)
    agent = asking.fleet[AGENT]
    agent.kill()
    agent.start()

    lines = asking.logged("killed-2", 4)
    assert [line["sample_status"] for line in lines] == ["finished"] * 4
    agent.wait_until_ready()


def test_the_example_is_what_a_newcomer_can_run(fleet: Fleet, asking: Asking, passable: Path) -> None:
    """Its program by its own declaration, on a runner of its own folder."""
    from ratchet.programs.declared import read_programs

    programs = read_programs(REPOSITORY / "examples/own-program/programs.toml", ("small",))
    runner = fleet[RUNNER]
    try:
        shutil.copytree(REPOSITORY / "examples/own-program", passable, dirs_exist_ok=True)
        runner.kill()
        runner.start({"RATCHET_PROGRAMS": str(passable / "programs.toml")})
        runner.wait_until_ready()
        asking.submit(task_id="example-1", input="sort: dbca", samples=2, reference="sort: dbca")
        lines = asking.logged("example-1", 2)
    finally:
        runner.kill()
        runner.start()
        runner.wait_until_ready()

    assert programs.by_agent == {"small": ("checker",)}
    assert [(line["program"], line["score"], line["usage"]["calls"]) for line in lines] == [("checker", 1.0, 3)] * 2


def runner_folder(runner: Any) -> Path:
    return Path(runner.environment["RATCHET_RUNNER_DIR"])


def test_nothing_is_left_when_the_fleet_ends(fleet: Fleet) -> None:
    runner = fleet[RUNNER]
    assert sockets_elsewhere(runner.pid) == []
    os.kill(runner.pid, 15)
    wait_until(lambda: runner.exit_code == 0, "the runner ended", 60)
    wait_until(lambda: marked(MARK) == [], "the kernel ended its sandboxes", 10)
    runner.start()
    runner.wait_until_ready()
