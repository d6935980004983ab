"""`ratchet record` on a fleet of processes: unchanged programs, recorded, scored, logged once; and kills in the middle.

The engine echoes token ids, so that the last thing a program says to the model is what it hears.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from demos.toy.byte_tokenizer import byte_tokenizer
from tests.acceptance.fleet import AGENT, Fleet
from tests.acceptance.ratchet_command import ForkedRatchet
from tests.processes import is_gone
from tests.programs import REPOSITORY, environment
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

WITHIN_S = 240

LOOPING = """
import json, os, sys, urllib.request

def ask(messages):
    body = json.dumps({"model": "any", "messages": messages, "temperature": 0.2}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]

messages = [{"role": "user", "content": "so?"}]
print(os.getpid(), os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"], file=open(sys.argv[1], "a"), flush=True)
for turn in range(int(sys.argv[2])):
    messages += [ask(messages), {"role": "user", "content": "and " * 8 + str(turn)}]
print("done")
"""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    byte_tokenizer(8192).save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def slow_fleet(start_fleet: Callable[..., Fleet]) -> Fleet:
    return start_fleet(environment={"RATCHET_AGENT_ECHO_LATENCY_S": "0.3"})


class Recording:
    """What types the command, for one fleet."""

    def __init__(self, fleet: Fleet, folder: Path, tokenizer: Path) -> None:
        self.fleet = fleet
        self.folder = folder
        self.where = ("--url", f"http://127.0.0.1:{fleet[AGENT].port}", "--tokenizer", str(tokenizer))
        self.settings = {
            "RATCHET_AMQP_URL": fleet.amqp_url,
            "RATCHET_NAMESPACE": fleet.namespace,
            "RATCHET_LOGS_DIR": str(fleet.logs),
        }
        self.ratchet = ForkedRatchet(folder, self.settings)

    def begin(self, *typed: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "services.cli", "record", *self.where, *typed],
            cwd=self.folder,
            env=environment(self.settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def lines(self, task_id: str) -> list[dict[str, Any]]:
        found = (json.loads(line) for line in (self.fleet.logs / "agent_interactions.jsonl").read_text().splitlines())
        return [line for line in found if line["task_id"] == task_id]


@pytest.fixture
def recording(slow_fleet: Fleet, tmp_path: Path, tokenizer: Path) -> Iterator[Recording]:
    yield Recording(slow_fleet, tmp_path, tokenizer)


def begun(file: Path, programs: int) -> list[tuple[int, str, str]]:
    """Pid, base URL and key of each program that wrote them."""

    def read() -> list[list[str]]:
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return lines if len(lines) >= programs else []

    found = wait_until(read, "the programs have begun", WITHIN_S)
    return [(int(pid), url, key) for pid, url, key in found]


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=WITHIN_S)
    return process.returncode, out.decode(), err.decode()


def assert_whole(line: dict[str, Any], turns: int) -> None:
    """One segment, of as many answers as there were turns, each ended."""
    (segment,) = line["segments"]
    assert (len(segment["spans"]), line["usage"]["calls"], line["usage"]["breaks"]) == (turns, turns, {})
    ends = [segment["completion_ids"][stop - 1] for _, stop in segment["spans"]]
    assert len(segment["logprobs"]) == line["usage"]["sampled_tokens"] and len(set(ends)) == 1


def example() -> str:
    """The program of the documents."""
    page = (REPOSITORY / "docs" / "conversations.md").read_text()
    (code,) = re.findall(r"```python\n(from openai import OpenAI\n.*?)```", page, re.DOTALL)
    return code


def test_the_program_of_the_documents_is_recorded_scored_and_logged(recording: Recording) -> None:
    (recording.folder / "my_agent.py").write_text(example())
    task = {"task_id": "example-1", "input": "dbca", "reference": "dbca"}
    (recording.folder / "task.json").write_text(json.dumps(task))
    typed = ("--task", "task.json", "--samples", "2", "--", sys.executable, "my_agent.py")

    ran = recording.ratchet("record", *recording.where, *typed, timeout_s=WITHIN_S)

    assert (ran.code, ran.out) == (0, "dbca\n"), ran.err
    assert "score 1.000 · small v1.0.0 · example-1" in ran.err
    lines = recording.lines("example-1")
    assert [(line["sample"], line["score"], line["sample_status"]) for line in lines] == [
        (0, 1.0, "finished"),
        (1, 1.0, "finished"),
    ]
    for line in lines:
        assert_whole(line, 1)
        assert (line["completion_ids"], line["engine"], line["arm"]["adapter_version"]) == (None, "echo", "v1.0.0")

    shown = recording.ratchet("log", "show", "example-1").out
    assert "dbca" in shown
    again = recording.ratchet("record", *recording.where, *typed, timeout_s=WITHIN_S)
    assert (again.code, again.out) == (0, "dbca\n")
    assert len(recording.lines("example-1")) == 2


def test_the_kill_of_a_program_fails_its_run_and_no_other(recording: Recording) -> None:
    file = recording.folder / "begun"
    program = ("--samples", "2", "--task-id", "killed-1", "--", sys.executable, "-c", LOOPING, str(file), "4")
    process = recording.begin("--input", "x", "--reference", "done", *program)
    programs = begun(file, 2)
    os.kill(programs[0][0], signal.SIGKILL)

    assert ended(process)[:2] == (0, "done\n")
    lines = recording.lines("killed-1")
    assert sorted((line["sample_status"], line["score"]) for line in lines) == [("failed", 0.0), ("finished", 1.0)]
    (whole,) = (line for line in lines if line["sample_status"] == "finished")
    assert_whole(whole, 4)
    assert whole["usage"]["overruled"] == {"temperature": [0.2]}


def test_the_kill_of_ratchet_record_ends_its_programs_and_their_keys_and_the_same_again_goes_on(
    recording: Recording,
) -> None:
    file = recording.folder / "begun"
    program = ("--samples", "2", "--task-id", "killed-3", "--", sys.executable, "-c", LOOPING, str(file), "3")
    process = recording.begin("--input", "x", "--reference", "done", *program)
    programs = begun(file, 2)
    process.kill()
    ended(process)

    for pid, url, _ in programs:
        wait_until(lambda pid=pid: is_gone(pid), "the program is gone", WITHIN_S)
        port = int(url.split(":")[2].partition("/")[0])
        assert not any(one.laddr.port == port for one in psutil.net_connections() if one.status == "LISTEN")
    assert recording.lines("killed-3") == []

    assert ended(recording.begin("--input", "x", "--reference", "done", *program))[:2] == (0, "done\n")
    lines = recording.lines("killed-3")
    assert [(line["sample"], line["sample_status"]) for line in lines] == [(0, "finished"), (1, "finished")]
    for line in lines:
        assert_whole(line, 3)
    assert not {key for _, _, key in begun(file, 4)} & set(
        (recording.fleet.logs / "assignments.jsonl").read_text().split()
    )
