"""`ratchet programs swap` on a fleet of real processes, with a team of two roles that each have a new version."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from demos.toy.byte_tokenizer import byte_tokenizer
from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from ratchet.service.errors import RegistryConflict
from ratchet.service.settings import FleetSettings
from schemas.records.decision import DecisionDraft
from tests.acceptance.fleet import Fleet
from tests.acceptance.ratchet_command import ForkedRatchet
from tests.passable import passable_folder
from tests.ratchet.adapters.making_adapters import published
from tests.ratchet.adapters.making_decisions import draft
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

AGENTS = ("small", "critic")
PAIR = """
import json, os, sys, urllib.request
text = sys.stdin.read()
for role in ("writer", "mender"):
    body = json.dumps({"model": role, "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    text = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
print(text)
"""
DECLARED = """
[agents.small]
programs = ["pair"]
roles = { writer = "small", mender = "critic" }

[programs.pair]
command = ["python3", "-I", "-S", "/agent/pair.py"]
binds = { "/agent" = "agent" }
"""


def is_decided(store: RegistryStore, made: DecisionDraft) -> bool:
    """Tell whether it was written: not where the orchestrator decided something between reading and writing."""
    try:
        store.change(store.read().revision, made)
    except RegistryConflict:
        return False
    return True


def test_each_vector_is_asked_what_users_asked_and_answered_by_the_versions_that_it_names(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    tokenizer = tmp_path / "tokenizer"
    byte_tokenizer(8192).save_pretrained(tokenizer)
    (tokenizer / "config.json").write_text("{}")
    with passable_folder() as place:
        (place / "agent").mkdir()
        (place / "agent" / "pair.py").write_text(PAIR)
        (place / "programs.toml").write_text(DECLARED)

        # given a team whose roles each have a new version, and five tasks in its log
        fleet = start_fleet(
            agents=AGENTS,
            programs=place / "programs.toml",
            environment={"RATCHET_AGENT_TOKENIZER": str(tokenizer)},
        )
        adapters = fleet.folder / "adapters"
        here = {
            "RATCHET_AMQP_URL": fleet.amqp_url,
            "RATCHET_NAMESPACE": fleet.namespace,
            "RATCHET_LOGS_DIR": str(fleet.logs),
            "RATCHET_ADAPTERS_DIR": str(adapters),
            "RATCHET_AGENTS": ",".join(AGENTS),
            "RATCHET_PROGRAMS": str(place / "programs.toml"),
        }
        ratchet = ForkedRatchet(fleet.folder, here)
        store = RegistryStore.from_settings(FleetSettings(adapters_dir=adapters, logs_dir=fleet.logs))
        (fleet.folder / "tasks.jsonl").write_text(
            "".join(json.dumps({"input": f"say {n}", "reference": f"say {n}"}) + "\n" for n in range(5))
        )
        submitted = ratchet("submit", "--file", "tasks.jsonl", "--samples", "1")
        assert submitted.code == 0, submitted.err
        for agent in AGENTS:
            made = draft(registration(published(adapters, agent), adapters), agent_id=agent)
            wait_until(lambda made=made: is_decided(store, made), "a registration")
            promote = ("adapters", "promote", "v1.0.1", "--agent", agent, "--reason", "to be swapped")
            wait_until(lambda promote=promote: ratchet(*promote).code == 0, "a promotion, once the gate is passed")

        # when the roles are swapped
        ran = ratchet("programs", "swap", "--tasks", "5", "-n", "1", "--json")
        assert ran.code == 0, ran.err

        rows = [json.loads(line) for line in ratchet("log", "tail", "-n", "20", "--json").out.splitlines()]

    # then each vector answered every prompt with the versions that it names, and echoes gain nothing
    vectors = [tuple(one["vector"].values()) for one in ran.json["vectors"]]
    assert vectors == [("v1.0.1", "v1.0.1"), ("v1.0.1", "v1.0.0"), ("v1.0.0", "v1.0.1"), ("v1.0.0", "v1.0.0")]
    answered = Counter(tuple(role["adapter_version"] for role in row["usage"]["roles"].values()) for row in rows)
    assert answered == dict.fromkeys(vectors, 5)
    assert {row["input"] for row in rows} == {f"say {n}" for n in range(5)}
    assert ran.json["together"]["writer"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "tasks": 5}
    assert ran.json["verdict"].startswith("not co-adapted")
