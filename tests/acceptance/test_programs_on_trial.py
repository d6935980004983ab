"""The whole way of a program in a fleet of processes: the better one is promoted on live traffic, the worse is not.

Three programs of a few lines ask the model, in sandboxes of the real runner: the present one is right in four of ten
answers, the better in nineteen of twenty, the worse in one. `make long-test`: some minutes.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from demos.toy.byte_tokenizer import byte_tokenizer
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.verification import verify_registry
from ratchet.experiments.records import experiments
from schemas.records.registry import AgentAdapters
from services.cli.experiment.command import check
from tests.acceptance.fleet import ORCHESTRATOR, Fleet
from tests.passable import passable_folder

pytestmark = [pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(1800)]

AGENT = "small"
WITHIN_S = 1200
WITHIN_TASKS = 2000
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
    right = {"present": 0.4, "better": 0.95, "worse": 0.05}
    declared = "\n".join(
        f'[programs.{name}]\ncommand = ["python3", "-I", "-S", "/agent/main.py", "{often}"]\n'
        f'binds = {{ "/agent" = "agent" }}\n'
        for name, often in right.items()
    )
    with passable_folder() as place:
        (place / "agent").mkdir()
        (place / "agent" / "main.py").write_text(PROGRAM)
        (place / "programs.toml").write_text(f"[agents.{AGENT}]\nprograms = {json.dumps(list(right))}\n\n{declared}")
        yield place / "programs.toml"


class Trial:
    """An operator and the users of one fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.store = RegistryStore(fleet.folder / "adapters")
        self._numbers = count()
        self._users = ThreadPoolExecutor(WAVE)

    @property
    def agent(self) -> AgentAdapters:
        return self.store.read().agent(AGENT)

    def state(self, program: str) -> str:
        entry = self.agent.programs.entries.get(program)
        return entry.state.value if entry else "unknown"

    def move(self, kind: str, program: str) -> None:
        self._send(f"v1/programs/{AGENT}/{kind}", {"program": program, "reason": "for the test"})

    def traffic_until(self, done: Callable[[], bool]) -> int:
        """Users' tasks in waves until then, each with its answer. Returns how many."""
        ends, sent = time.monotonic() + WITHIN_S, 0
        while not done():
            assert time.monotonic() < ends, f"not after {sent} tasks: {self.agent.programs}"
            list(self._users.map(self._ask, [next(self._numbers) for _ in range(WAVE)]))
            sent += WAVE
        return sent

    def _ask(self, number: int) -> None:
        task = {"task_id": f"trial-{number}", "input": f"say {number}", "reference": f"say {number}"}
        self._send("v1/tasks?wait_s=120", task)

    def _send(self, path: str, body: Any) -> Any:
        url = f"http://127.0.0.1:{self.fleet[ORCHESTRATOR].port}/{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=150) as answer:
            return json.load(answer)


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
            "RATCHET_SAMPLES": "1",
            "RATCHET_SANDBOX_RUNS_AT_ONCE": "4",
            "RATCHET_WATCH_SHARE": "0.2",
            "RATCHET_GOLDEN_FROM_TRAFFIC": "false",
        },
    )
    trial = Trial(fleet)

    # given one program that answers by default
    trial.move("promote", "present")
    trial.traffic_until(lambda: trial.state("present") == "stable")
    # when a better one is tried
    trial.move("try", "better")
    to_promotion = trial.traffic_until(lambda: trial.agent.programs.primary == "better")
    trial.traffic_until(lambda: trial.agent.watch is not None)
    # and then a worse one
    trial.move("try", "worse")
    to_verdict = trial.traffic_until(lambda: trial.state("worse") in ("rolled_back", "inconclusive"))

    # then the better one answers, and every verdict is replayed from the logs, bit for bit
    assert max(to_promotion, to_verdict) < WITHIN_TASKS
    assert (trial.agent.programs.primary, trial.state("worse")) == ("better", "rolled_back")
    found = experiments(line.decision for line in trial.store.ledger.read())
    assert [(one.running.arms, one.outcome) for one in found] == [
        (("better", "present"), "promoted"),
        (("better", "present"), "running"),
        (("worse", "better"), "rolled_back"),
    ]
    assert [check(one, fleet.logs).difference for one in (found[0], found[2])] == [None, None]
    assert verify_registry(trial.store, AdapterLimits(64)).ok
