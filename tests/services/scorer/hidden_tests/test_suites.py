"""Suites of tests, and what has them pass by chance; what is run is played."""

from __future__ import annotations

import json
from typing import Any

from services.scorer.hidden_tests.plan import Plan
from services.scorer.hidden_tests.running import worth
from workbench.sandbox.job import End, Job, Result, TreeFile

PASSED, FAILED = Result(End.EXITED, "it exited with 0", 0), Result(End.EXITED, "it exited with 1", 1)
OWN, CONTROL = "2", "3"
BEFORE = {"answer": TreeFile(b"")}


def plan(**suite: Any) -> Plan:
    given = {"command": ["run", "{test}"], "tests": ["a"], "files": {"t": OWN}, "control": {"t": CONTROL}, **suite}
    return Plan.model_validate_json(json.dumps({"suite": given}))


async def score(plan: Plan, passes: Any) -> float:
    async def run(job: Job) -> Result:
        return PASSED if passes(bytes(job.tree["t"].content).decode()) else FAILED

    return (await worth(plan, BEFORE, BEFORE, run)).score


async def test_each_of_several_controls_is_tried() -> None:
    controls = [{"t": str(number)} for number in range(3, 20)]

    for wrong in controls:
        assert await score(plan(control=controls), {OWN, wrong["t"]}.__contains__) == 0
        assert await score(plan(control=controls, tests=["a", "b", "c"]), {OWN, wrong["t"]}.__contains__) == 0
    assert await score(plan(control=controls), {OWN}.__contains__) == 1


async def test_a_build_can_not_guess_for_all_that_come_after_it() -> None:
    """Builds that are made in turns have a guess of their own, and none may be wrong."""
    built = list[str]()

    async def run(job: Job) -> Result:
        if not job.collect_tree:
            return PASSED if job.tree["guess"].content == OWN.encode() else FAILED
        built.append(bytes(job.tree["t"].content).decode())
        return Result(End.EXITED, "", 0, tree={**job.tree, "guess": job.tree["t"]})

    assert (await worth(plan(build=["make"]), BEFORE, BEFORE, run)).score == 1
    assert sorted(built) == [OWN] * 5 + [CONTROL] * 5


async def test_what_only_keeps_is_built_once() -> None:
    built = 0

    async def run(job: Job) -> Result:
        nonlocal built
        built += job.collect_tree
        return Result(End.EXITED, "", 0, tree=job.tree)

    suite = {"command": ["run", "{test}"], "build": ["make"], "keeps": list("abcdef"), "files": {"t": OWN}}
    given = Plan.model_validate({"suite": suite, "cases": [{"command": ["x"], "expected_text": ""}]})

    assert (await worth(given, BEFORE, BEFORE, run)).score == 1
    assert built == 1


async def test_a_run_that_keeps_does_not_know_whether_it_lies_beside_the_real_files() -> None:
    """Else it tells the others which files those are, through what all runs share."""
    beside = list[str]()

    async def run(job: Job) -> Result:
        found = bytes(job.tree["t"].content).decode()
        if job.command[-1] == "kept":
            beside.append(found)
        return PASSED if found == OWN else FAILED

    assert (await worth(plan(keeps=["kept"]), BEFORE, BEFORE, run)).score == 1
    assert sorted(beside) == [OWN, CONTROL]
