"""The whole way of a program in a fleet of processes: the better one is promoted on live traffic, the worse is not.

Two programs of a few lines ask the model, in sandboxes of the real runner, and are right in nine and in four of ten
answers. `make long-test`: some minutes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ratchet.adapters.registry import RegistryStore
from ratchet.models.toy.byte_tokenizer import byte_tokenizer
from schemas.records.registry import AgentAdapters
from tests.acceptance.fleet import ORCHESTRATOR, Fleet
from tests.acceptance.ratchet_command import Ratchet

pytestmark = [pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(1800)]

AGENT = "small"
PATIENCE_S = 1200
PATIENCE_TASKS = 2000
WAVE = 20
PROGRAM = """
import json, os, random, sys, urllib.request
asked = sys.stdin.read().strip()
text = asked if random.random() < float(sys.argv[1]) else "something else"
body = json.dumps({"model": "any", "messages": [{"role": "user", "content": text}]}).encode()
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""
"""The echo engine says what it is asked."""


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="ratchet-trial-", dir="/var/tmp"))
    place.chmod(0o755)
    (place / "agent").mkdir()
    (place / "agent" / "main.py").write_text(PROGRAM)
    right = {"present": 0.4, "better": 0.9, "worse": 0.1}
    declared = "\n".join(
        f'[programs.{name}]\ncommand = ["python3", "-I", "-S", "/agent/main.py", "{often}"]\n'
        f'binds = {{ "/agent" = "agent" }}\n'
        for name, often in right.items()
    )
    (place / "programs.toml").write_text(f"[agents.{AGENT}]\nprograms = {json.dumps(list(right))}\n\n{declared}")
    yield place / "programs.toml"
    shutil.rmtree(place)


class Trial:
    """An operator and the users of one fleet."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet = fleet
        self._store = RegistryStore(fleet.logs.parent / "adapters")
        self._folder = folder
        settings = {
            "RATCHET_AMQP_URL": fleet.amqp_url,
            "RATCHET_NAMESPACE": fleet.namespace,
            "RATCHET_LOGS_DIR": str(fleet.logs),
            "RATCHET_ADAPTERS_DIR": str(self._store.folder),
        }
        self.ratchet = Ratchet(folder, settings)
        self._numbers = count()

    @property
    def agent(self) -> AgentAdapters:
        return self._store.read().agent(AGENT)

    def state(self, program: str) -> str:
        entry = self.agent.programs.entries.get(program)
        return entry.state.value if entry else "unknown"

    def post(self, move: str, program: str) -> Any:
        body = json.dumps({"program": program, "reason": "for the test"}).encode()
        url = f"http://127.0.0.1:{self.fleet[ORCHESTRATOR].port}/v1/programs/{AGENT}/{move}"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def traffic_until(self, done: Callable[[], bool]) -> int:
        """Users' tasks in waves until then. Returns how many."""
        ends, sent = time.monotonic() + PATIENCE_S, 0
        while not done():
            assert time.monotonic() < ends, f"not after {sent} tasks: {self.agent.programs}"
            lines = [
                json.dumps({"task_id": f"trial-{number}", "input": f"say {number}", "reference": f"say {number}"})
                for number in (next(self._numbers) for _ in range(WAVE))
            ]
            (self._folder / "tasks.jsonl").write_text("\n".join(lines) + "\n")
            ran = self.ratchet("submit", "--file", "tasks.jsonl", timeout_s=300)
            assert ran.code in (0, 1), ran.err
            sent += WAVE
        return sent


def test_the_better_program_is_promoted_and_the_worse_is_not(
    start_fleet: Callable[..., Fleet], programs: Path, tmp_path: Path
) -> None:
    tokenizer = tmp_path / "tokenizer"
    byte_tokenizer(8192).save_pretrained(tokenizer)
    (tokenizer / "config.json").write_text("{}")
    fleet = start_fleet(
        programs=programs,
        environment={
            "RATCHET_AGENT_TOKENIZER": str(tokenizer),
            "RATCHET_SCORER": "verifier:exact",
            "RATCHET_SAMPLES": "2",
            "RATCHET_SANDBOX_RUNS_AT_ONCE": "4",
            "RATCHET_PROBATION_UNITS": "60",
            "RATCHET_HOLDBACK": "0.3",
            "RATCHET_GOLDEN_FROM_TRAFFIC": "false",
        },
    )
    trial = Trial(fleet, tmp_path)

    # given one program that answers by default
    trial.post("promote", "present")
    trial.traffic_until(lambda: trial.state("present") == "stable")
    # when a better one is tried
    trial.post("try", "better")
    to_promotion = trial.traffic_until(lambda: trial.agent.programs.primary == "better")
    trial.traffic_until(lambda: trial.state("better") == "stable")
    # and then a worse one
    trial.post("try", "worse")
    to_verdict = trial.traffic_until(lambda: trial.state("worse") in ("rolled_back", "inconclusive"))

    # then the better one answers, and every verdict is replayed from the logs, bit for bit
    assert (to_promotion, to_verdict) < (PATIENCE_TASKS, PATIENCE_TASKS)
    assert trial.agent.programs.primary == "better"
    assert trial.state("worse") == "rolled_back"
    listed = trial.ratchet("experiment", "list", "--json").json
    ended = [one["experiment_id"] for one in listed if one["of"] == "programs" and one["ended"]]
    assert [one["outcome"] for one in listed if one["of"] == "programs"] == ["promoted", "settled", "rolled_back"]
    assert [trial.ratchet("experiment", "replay", one).code for one in ended] == [0, 0, 0]
    assert trial.ratchet("adapters", "verify").code == 0
