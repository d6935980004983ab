"""The commands against a fleet of real processes on a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.fleet import Fleet
from tests.acceptance.ratchet_command import ForkedRatchet, Ratchet
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def ratchet(fleet: Fleet, tmp_path: Path) -> Ratchet:
    environment = {
        "RATCHET_AMQP_URL": fleet.amqp_url,
        "RATCHET_NAMESPACE": fleet.namespace,
        "RATCHET_LOGS_DIR": str(fleet.logs),
        "RATCHET_AGENTS": ",".join(fleet.agents),
    }
    return ForkedRatchet(tmp_path, environment)


def test_a_task_from_stdin_and_the_whole_result_as_json(ratchet: Ratchet) -> None:
    ran = ratchet("submit", "-", "--json", "--task-id", "from-stdin", stdin="two\nlines\n")

    assert (ran.json["task_id"], ran.json["response"], ran.json["status"]) == ("from-stdin", "two\nlines", "ok")


def test_a_task_without_waiting_is_found_in_the_log_later(ratchet: Ratchet) -> None:
    task_id = ratchet("submit", "later", "--no-wait").out.strip()

    ran = wait_until(lambda: (ran := ratchet("result", task_id)).code == 0 and ran, "the task's result")

    assert ran.out == "later\n"
    assert len(ratchet("result", task_id, "--json").json["samples"]) == 8


def test_a_task_that_can_t_be_handled_exits_with_one(ratchet: Ratchet) -> None:
    ran = ratchet("submit", "x", "--agent", "nobody")

    assert ran.code == 1
    assert "nobody" in ran.err


def test_a_file_of_tasks_gives_a_result_a_line(ratchet: Ratchet) -> None:
    lines = [json.dumps({"input": f"question {number}", "task_id": f"file-{number}"}) for number in range(50)]
    (ratchet.folder / "tasks.jsonl").write_text("\n".join(lines))

    ran = ratchet("submit", "--file", "tasks.jsonl")

    results = {result["task_id"]: result["response"] for result in map(json.loads, ran.out.splitlines())}
    assert ran.code == 0
    assert results == {f"file-{number}": f"question {number}" for number in range(50)}
    assert "50 answered, 0 failed" in ran.err


def test_a_bad_line_stops_a_file_before_its_first_task(ratchet: Ratchet) -> None:
    (ratchet.folder / "tasks.jsonl").write_text('{"input": "x", "task_id": "before-the-bad-line"}\nnot json\n')

    assert ratchet("submit", "--file", "tasks.jsonl").code == 2
    assert ratchet("result", "before-the-bad-line").code == 1


def test_the_tail_of_the_log_shows_what_was_answered(ratchet: Ratchet) -> None:
    ratchet("submit", "to be seen in the tail")

    rows = [json.loads(line) for line in ratchet("log", "tail", "-n", "8", "--json").out.splitlines()]

    assert [row["input"] for row in rows] == ["to be seen in the tail"] * 8
    assert "to be seen in the tail → to be seen in the tail" in ratchet("log", "tail", "-n", "1").out
