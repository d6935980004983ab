"""`ratchet demo --tools` at a small size: a real model, the recorder, the trainer, the gate and the live test."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from demos.toy.tools.task import task_of
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import read_json
from tests.acceptance.ratchet_command import Ran, Ratchet
from tests.acceptance.test_up_down import free_base
from tests.programs import REPOSITORY

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

HELD_OUT, GROUPS, GROUP = 16, 24, 8
SIZE = ("--tasks", str(HELD_OUT), "--groups", str(GROUPS), "--turns", "1", "--timeout", "400")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tools")


@pytest.fixture(scope="module")
def ran(amqp_url: str, place: Path) -> Ran:
    """With the model of the checkout, which is made where it is not there."""
    ratchet = Ratchet(place, {"RATCHET_AMQP_URL": amqp_url, "RATCHET_MODELS_DIR": str(REPOSITORY / "models")})
    return ratchet("demo", "--tools", "--json", *SIZE, "--port-base", str(free_base()), timeout_s=850)


@pytest.fixture(scope="module")
def story(ran: Ran) -> dict[str, Any]:
    assert ran.out, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def rollouts(place: Path) -> list[dict[str, Any]]:
    logs = place / ".ratchet" / "demo-tools" / "logs"
    lines = [record.value for record in read_json(logs, INTERACTIONS, dict)]
    return [line for line in lines if line.get("sample") is not None]


def processes_in(folder: Path) -> list[str]:
    """That run there."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(folder):
                found.append(process.name())
    return found


def test_a_version_learns_from_conversations_and_is_promoted_on_live_traffic(story: dict[str, Any]) -> None:
    (turn,) = story["turns"]
    assert (turn["version"], turn["promoted"], story["primary"]) == ("v1.0.1", True, "v1.0.1")
    assert story["held_out"]["after"]["mean"] > story["held_out"]["before"]["mean"]  # how much, so few tasks can't say
    assert story["blanked"]["mean"] <= 0.1
    assert story["tasks"] == {**story["tasks"], "lost": 0, "failed": 0, "logged_twice": 0, "dead_letters": 0}


def test_what_was_sampled_is_what_was_trained_on_from_where_it_was_sampled(story: dict[str, Any]) -> None:
    (told,) = story["conversations"]
    assert told["gap"] <= 1e-4
    assert told["sampled_tokens"] == told["trained_tokens"] + told["without_advantage_tokens"] > 0
    assert told["rollouts"] == told["segments"] >= GROUPS * GROUP / 2
    assert told["breaks"] == {}


def test_every_rollout_is_one_segment_in_the_log_with_the_tools_results_between(
    story: dict[str, Any], place: Path
) -> None:
    logged = rollouts(place)
    assert len(logged) > HELD_OUT * 5 + GROUPS * GROUP
    for line in logged:
        (segment,) = line["segments"]
        given = [turn for turn in segment["turns"] if turn.get("span") is None]
        assert len(segment["spans"]) == line["usage"]["calls"]
        assert len(segment["logprobs"]) == line["usage"]["sampled_tokens"]
        assert given[0]["content"] == task_of(line["input"]).question
        assert {turn["role"] for turn in given[1:]} <= {"tool"}
    assert {line["sample_status"] for line in logged} == {"finished"}
    assert {line["program"] for line in logged} == {"tool-agent"}


def test_the_gate_s_tasks_go_the_same_way(story: dict[str, Any], place: Path) -> None:
    golden = [line for line in rollouts(place) if line["task_id"].startswith("golden/")]
    assert {line["adapter_version"] for line in golden} == {"v1.0.0", "v1.0.1"}
    assert all(line["score"] is not None for line in golden)


def test_it_leaves_no_process_behind_and_a_report(ran: Ran, story: dict[str, Any], place: Path) -> None:
    assert processes_in(place) == []
    assert Path(story["report"]).read_text().startswith("<!doctype html>")
    assert "ready" not in ran.out and "about" in ran.err
