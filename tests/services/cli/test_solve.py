"""`ratchet solve`: the task that it makes, what it tells meanwhile, and what it says the answer was judged by."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.service.errors import TimedOut
from schemas.api.tasks import LoggedSample, TaskHistory
from services.cli import solve as command
from services.cli.constrain import constraints_of
from services.cli.solve import new_problem, progress, report, write_out
from services.cli.terminal import UsageError

AT = "2026-11-20T10:00:00Z"
ROLLOUT = {
    "task_id": "t",
    "agent_id": "small",
    "program": "coding-team",
    "sample": 0,
    "state": "running",
    "started_at": AT,
    "seconds": 1,
    "calls": 2,
    "sampled_tokens": 30,
    "runner": "r",
}
ASKED = {
    "approval_id": "a1",
    "task_id": "t",
    "agent_id": "small",
    "program": "coding-team",
    "sample": 0,
    "question": "May it be slow?",
    "ends": False,
    "answer": "",
    "patch": "",
    "asked_at": AT,
    "until": AT,
}


def history(state: str = "ok", **given: Any) -> TaskHistory:
    fields: dict[str, Any] = {
        "task_id": "t",
        "sequence": 0,
        "state": state,
        "agent_id": "small",
        "input": "x",
        "metadata": {},
        "reference": None,
        "criteria": None,
        "task_type": None,
        "session_id": None,
        "priority": 0,
        "admitted_at": AT,
        "deadline": AT,
        "closed_at": None,
        "arm": None,
        "sampling": {},
        "hops": [],
        "samples": [],
        "engine": None,
        "adapter_sha256": None,
        "scoring_agent_id": None,
        "scorer": None,
        "result": None,
    }
    return TaskHistory.model_validate(fields | given)


def sample(**given: Any) -> LoggedSample:
    fields = {"index": 0, "text": "def f(): ...", "score": 0.5, "status": "ok", "reason": "half", "chosen": True}
    return LoggedSample.model_validate({"finish_reason": None, "tokens": 9} | fields | given)


def played(*states: str) -> Callable[[str, str], Any]:
    """The API, which says these states of the task one after the other."""
    left = list(states)

    def ask(_method: str, path: str) -> Any:
        if path.startswith("/v1/rollouts"):
            return {"items": [ROLLOUT], "runners": []}
        if path.startswith("/v1/approvals"):
            return {"items": [ASKED]}
        return history(left.pop(0) if len(left) > 1 else left[0]).model_dump(mode="json")

    return ask


def test_the_task_has_what_was_asked_and_nothing_else() -> None:
    bare = new_problem("reverse a string", None, 60)
    given = {"criteria": "{}", "programs": ["coding-team"], "agent_id": "small", "samples": 4, "approval": "on-change"}
    full = new_problem("p", "go", 60, **given, constraints=constraints_of(["calls=3", "tools=file_read,test_run"]))

    assert bare.keys() == {"task_id", "input", "deadline"}
    assert full["input"] == "p\n\nWrite it in go."
    assert (full["programs"], full["samples"], full["approval"], full["criteria"]) == (
        ["coding-team"],
        4,
        "on-change",
        "{}",
    )
    assert full["constraints"] == {"calls": 3, "tools": ["file_read", "test_run"]}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["calls"], "write each limit once"),
        (["calls=1", "calls=2"], "write each limit once"),
        (["calls=0"], "calls: Input should be greater than or equal to 1"),
        (["rounds=2"], "rounds: Extra inputs are not permitted"),
    ],
)
def test_a_constraint_that_is_none_is_refused(given: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        constraints_of(given)


def test_it_tells_who_is_at_work_and_what_is_asked_once() -> None:
    told = list(progress(played("open", "open", "ok"), "t", time.monotonic() + 60))

    assert told == [
        "sample 0 by coding-team: running, 2 calls, 30 tokens",
        "sample 0 asks: May it be slow?   ratchet approve a1",
    ]


def test_it_does_not_wait_for_ever() -> None:
    with pytest.raises(TimedOut, match="ratchet result t"):
        list(progress(played("open"), "t", time.monotonic() - 1))


@pytest.mark.parametrize(
    ("criteria", "judged", "trust"),
    [
        ('{"tests": {}}', "judged by its hidden cases, by tests", "as far as its hidden cases reach; nothing else was"),
        (None, "judged by tests", "read it first; echo is often wrong, and no tests of yours were run (--tests)"),
    ],
)
def test_it_says_what_the_answer_was_judged_by_and_how_far_to_trust_it(
    criteria: str | None, judged: str, trust: str
) -> None:
    usage = {"calls": 3, "sampled_tokens": 40, "seconds": 1.5, "roles": {"generator": {"adapter_version": "v1.0.1"}}}
    found = history(criteria=criteria, scorer={"id": "tests", "revision": "1"}, engine="echo")

    assert "took 7 tokens" in report(found, sample(tokens=7))
    *said, last = report(found, sample(parts={"tests": 0.5, "style": 1.0}, usage=usage))

    assert last.startswith(f"how far to trust it: {trust}")
    assert said == [
        judged,
        "score 0.500 (tests 0.500, style 1.000): half",
        "took 3 calls, 40 tokens, 1.5 s",
        "generator v1.0.1: 0 calls, 0 tokens",
    ]


def test_it_writes_the_answer_the_patch_and_the_result(tmp_path: Path) -> None:
    write_out(tmp_path / "out", history(), sample(artifact={"patch": "diff"}), "go")

    assert (tmp_path / "out" / "answer.go").read_text() == "def f(): ..."
    assert (tmp_path / "out" / "answer.patch").read_text() == "diff"
    assert json.loads((tmp_path / "out" / "result.json").read_text())["task_id"] == "t"


def test_a_problem_is_named_once_and_tests_are_json(tmp_path: Path) -> None:
    (tmp_path / "tests.json").write_text("no")

    with pytest.raises(UsageError, match="either --problem or --file"):
        command._problem("x", tmp_path / "tests.json")
    with pytest.raises(UsageError, match="--tests"):
        command._criteria(tmp_path / "tests.json")
