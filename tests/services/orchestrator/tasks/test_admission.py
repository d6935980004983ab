"""What a task may ask for, and what the fleet decides where it does not."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ratchet.service.errors import Reject
from schemas.messages.task import Constraints, Task
from schemas.messages.work import Arm, Sampling, Work
from services.orchestrator.tasks.admission import AdmissionPolicy, Origin, admit

NOW = datetime(2031, 5, 1, 12, 0, tzinfo=UTC)
FLEETS = Sampling(n=8, temperature=1.0, top_p=1.0, top_k=0, max_tokens=256)
POLICY = AdmissionPolicy(("small", "coder"), FLEETS, timedelta(hours=1))


@pytest.mark.parametrize(
    ("samples", "size", "refused"), [(None, 512, False), (None, 513, True), (64, 16, False), (64, 17, True)]
)
def test_a_small_task_may_not_become_a_large_one(samples: int | None, size: int, refused: bool) -> None:
    policy = AdmissionPolicy(("small",), Sampling(n=2), timedelta(hours=1), max_logged_bytes=1024)

    with pytest.raises(Reject, match="RATCHET_MAX_LOGGED_BYTES") if refused else nullcontext():
        policy.check_size(Task(task_id="t", input="x", samples=samples), size)


@pytest.mark.parametrize(
    ("asked", "changed"),
    [
        ({}, {}),
        ({"samples": 2}, {"n": 2}),
        ({"temperature": 0.0, "top_p": 0.9}, {"temperature": 0.0, "top_p": 0.9}),
        ({"max_tokens": 16}, {"max_tokens": 16}),
        ({"max_tokens": 100_000}, {}),
        ({"max_tokens": 16, "constraints": Constraints(tokens=8)}, {"max_tokens": 8}),
        ({"constraints": Constraints(tokens=100_000)}, {}),
        ({"constraints": Constraints(calls=1)}, {}),
    ],
    ids=str,
)
def test_a_task_is_sampled_as_it_asks_within_the_fleets_limit(asked: dict[str, Any], changed: dict[str, Any]) -> None:
    task = Task(task_id="t1", input="x", **asked)

    work = admit(task, POLICY, arm=Arm(sequence=0), now=NOW, origin=Origin())

    assert work.sampling == FLEETS.model_copy(update=changed)


def test_a_constraint_on_a_tool_that_there_is_not_is_refused() -> None:
    POLICY.check_constraints(Task(task_id="t", input="x", constraints=Constraints(tools=("file_read",))))

    with pytest.raises(Reject, match=r"constraints\.tools: there is no tool 'file_writ': is 'file_write' meant"):
        POLICY.check_constraints(Task(task_id="t", input="x", constraints=Constraints(tools=("file_writ",))))


def test_a_task_that_other_providers_play_in_teaches_nothing() -> None:
    task = Task(task_id="t", input="x", profile="mixed")

    assert admit(task, POLICY, arm=Arm(sequence=0), now=NOW, origin=Origin()).kept_apart is True


def test_a_work_says_nothing_that_the_schema_would_not_let_in() -> None:
    task = Task(task_id="t1", input="x", samples=2, deadline=NOW + timedelta(seconds=1), task_type="sort")

    for asked in (task, Task(task_id="t2", input="x")):
        work = admit(asked, POLICY, arm=Arm(sequence=0), now=NOW, origin=Origin("reply.mine", "c"))

        assert Work.model_validate(dict(work)) == work == Work.decode(work.encode())
        assert list(work.__dict__) == list(Work.model_fields)
