"""Hidden cases and the tests of a suite, run on what an answer left; and what that is worth."""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from ratchet.service.errors import one_line
from services.scorer.hidden_tests.languages import (
    PROGRAM,
    TOOLS,
    Files,
    build,
    job_of,
    job_of_script,
    job_of_test,
    own_build,
)
from services.scorer.hidden_tests.plan import TEST_SCRIPT, Case, Plan, Suite
from services.scorer.matching.json_values import NoJson, read
from workbench.sandbox.job import Job, Result, TreeFile


def fault(case: Case, output: bytes) -> str | None:
    """None where the case is passed. It says what is wrong, and nothing of what was expected."""
    try:
        text = output.decode()
    except UnicodeDecodeError:
        return "its output is no UTF-8"
    if case.expected_text is not None:
        return None if text.rstrip() == case.expected_text.rstrip() else "wrong output"
    try:
        given = read(text.strip())
    except NoJson:
        return "its output is not one JSON value" if text.strip() else "no output"
    return None if same(given, case.expected, case.tolerance) else "wrong value"


def same(given: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Truth values are no numbers. A whole number will do where a float is expected, for half of the languages write
    3.0 so; a float never does where a whole number is expected."""
    match expected:
        case bool() | None:
            return given is expected
        case int():
            return type(given) is int and given == expected
        case float():
            return type(given) in (int, float) and _is_near(given, expected, tolerance)
        case str():
            return type(given) is str and given == expected
        case list():
            return (
                type(given) is list
                and len(given) == len(expected)
                and all(same(one, other, tolerance) for one, other in zip(given, expected, strict=True))
            )
        case dict():
            return (
                type(given) is dict
                and given.keys() == expected.keys()
                and all(same(given[key], expected[key], tolerance) for key in expected)
            )
    return False


def _is_near(given: int | float, expected: float, tolerance: float) -> bool:
    try:
        return abs(given - expected) <= tolerance
    except OverflowError:  # a whole number larger than any float
        return False


T = TypeVar("T")
Run = Callable[[Job], Awaitable[Result]]
NEED_PROC = ("rust",)
"""Languages whose compiler looks for itself there."""
WHERE_TOOLS_ARE = "/usr/local/bin:/usr/bin:/bin"
SHOWN_FAULTS = 5
AT_ONCE = 4
RUNS_OF_A_SUITE = 10
"""The least runs, half with the control: what passes by chance passes one in a thousand times."""


class DoesNotBuild(Exception):
    """The answer's own fault, in the compiler's words."""


def missing_tool(plan: Plan, *, has_proc: bool = True) -> str | None:
    """A sentence where this machine can't run the plan's language. `has_proc`: whether its sandboxes have a /proc."""
    tool = TOOLS[plan.language]
    if not has_proc and plan.language in NEED_PROC:
        return f"{tool} reads /proc, which sandboxes of this container don't have: its /proc must not be masked"
    if shutil.which(tool, path=WHERE_TOOLS_ARE) is not None:
        return None
    return f"this scorer's machine has no {tool} for {plan.language}: sh infra/setup-toolchains.sh"


def judged_files(plan: Plan, before: Files, after: Files) -> dict[str, TreeFile]:
    """Return the answer's files, with what is to be restored as it was, and the task's own files over all."""
    kept = {path: file for path, file in after.items() if not _is_restored(plan, path)}
    was = {path: file for path, file in before.items() if _is_restored(plan, path)}
    return {**_drop_conflicts(kept, (*was, *plan.files)), **was, **_own(plan.files)}


def _is_restored(plan: Plan, path: str) -> bool:
    return any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in plan.restore)


def _drop_conflicts(files: Mapping[str, TreeFile], over: tuple[str, ...]) -> dict[str, TreeFile]:
    """Return the files without those where `over` has a folder, or the other way round."""
    folders = {path[:at] for path in over for at, one in enumerate(path) if one == "/"}
    names = set(over)
    return {
        path: file
        for path, file in files.items()
        if path not in folders and not any(path[:at] in names for at, one in enumerate(path) if one == "/")
    }


def _own(files: Mapping[str, str]) -> dict[str, TreeFile]:
    return {path: TreeFile(text.encode("utf-8", "replace")) for path, text in files.items()}


@dataclass(frozen=True, slots=True)
class Built:
    """A built answer: the files, and a program for each function, or for commands (None), where one was built."""

    files: Files
    programs: Mapping[str | None, bytes]


async def build_answer(plan: Plan, files: Files, run: Run) -> Built:
    """Raises DoesNotBuild."""
    if plan.build is not None:
        return Built(await _run_build(plan, plan.build, files, plan.files, run), {})
    programs = dict[str | None, bytes]()
    for function in dict.fromkeys(case.function for case in plan.cases):
        if (job := build(plan, files, function)) is not None:
            result = await run(job)
            if not result.succeeded or PROGRAM not in result.files:
                raise DoesNotBuild(_why(result))
            programs[function] = result.files[PROGRAM]
    return Built(files, programs)


async def _run_build(plan: Plan, command: Sequence[str], files: Files, own: Mapping[str, str], run: Run) -> Files:
    """Run the task's build command over the files; the task's own files are put over the result again."""
    result = await run(own_build(plan, command, files))
    if not result.succeeded:
        raise DoesNotBuild(_why(result))
    return {**_drop_conflicts(result.tree, tuple(own)), **_own(own)}


def _why(result: Result) -> str:
    said = (result.stderr or result.stdout).decode(errors="replace").strip().splitlines()
    return f"it does not build: {result.says}; {' '.join(said[:3])}"


def job(plan: Plan, case: Case, ready: Built) -> Job:
    return job_of(plan, case, ready.files, ready.programs.get(case.function))


def fault_of(case: Case, result: Result) -> str | None:
    return fault(case, result.stdout) if result.succeeded else result.says


@dataclass(frozen=True, slots=True)
class Worth:
    """The worth of an answer: a share in [0, 1], and why, for people; it never says what was expected."""

    score: float
    reason: str


async def worth(plan: Plan, before: Files, after: Files, run: Run) -> Worth:
    """Raises DoesNotBuild, and what `run` raises."""
    if plan.script is not None:
        return _worth_by_script(await run(job_of_script(plan, judged_files(plan, before, after))))
    ready = await build_answer(plan, judged_files(plan, before, after), run)
    results = await asyncio.gather(*(run(job(plan, case, ready)) for case in plan.cases))
    faults = [fault_of(case, result) for case, result in zip(plan.cases, results, strict=True)]
    wrong = {plan.case_name(number): said for number, said in enumerate(faults) if said is not None}
    earning = [number for number, case in enumerate(plan.cases) if not case.keeps]
    right = sum(faults[number] is None for number in earning)
    said = [_summarise(len(plan.cases), wrong)] if plan.cases else []
    if any(said is not None and case.keeps for case, said in zip(plan.cases, faults, strict=True)):
        return Worth(0.0, f"what worked before does not: {said[0]}")
    if plan.suite is not None:
        if (spoilt := await _fault_of_suite(plan, ready, run)) is not None:
            return Worth(0.0, "; ".join([*said, spoilt]))
        said.append(f"the suite: {len(plan.suite.tests) + len(plan.suite.keeps)} tests")
    return Worth(right / len(earning) if earning else 1.0, "; ".join(said))


def _worth_by_script(result: Result) -> Worth:
    """0 without a reward: an answer must not gain by breaking what judges it."""
    if not result.succeeded:
        said = one_line(result.stderr.decode(errors="replace").strip())
        return Worth(0.0, f"{TEST_SCRIPT} wrote no reward: {result.says}" + (f"; it printed: {said}" if said else ""))
    reward = reward_of(result.stdout.decode(errors="replace"))
    if reward is None:
        return Worth(0.0, f"{TEST_SCRIPT} wrote a reward that is no number, nor JSON with one `reward`")
    return Worth(min(1.0, max(0.0, reward)), f"{TEST_SCRIPT} gave {reward:.4g}")


def reward_of(text: str) -> float | None:
    """Return the reward of a file of Harbor's: a number, or JSON with the key `reward`, or with one key at all."""
    try:
        given: object = float(text) if text.strip()[:1] not in ("{", "") else read(text)
    except (ValueError, NoJson):
        return None
    if isinstance(given, dict):
        given = given.get("reward", next(iter(given.values())) if len(given) == 1 else None)
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    return float(given) if math.isfinite(given) else None


async def _fault_of_suite(plan: Plan, ready: Built, run: Run) -> str | None:
    """None where all of its tests pass, and none does with a control. In an order that nobody can know."""
    suite = plan.suite
    assert suite is not None
    program = ready.programs.get(None)
    trees: dict[Place, Files] = {}

    async def files_for(place: Place) -> Files:
        if place in trees:
            return trees[place]
        control = suite.controls[place.number % len(suite.controls)] if place.is_control else {}
        own = {**suite.files, **control}
        files: Files = {**_drop_conflicts(ready.files, tuple(own)), **_own(own)}
        return files if suite.build is None else await _run_build(plan, suite.build, files, own, run)

    for some in _in_fours(_test_order(suite)):
        places = list(dict.fromkeys(place for _, place in some))
        trees = dict(zip(places, await asyncio.gather(*map(files_for, places)), strict=True))
        results = await asyncio.gather(*(run(job_of_test(plan, test, trees[place], program)) for test, place in some))
        for (test, place), result in zip(some, results, strict=True):
            if place.is_control and result.succeeded and test in suite.tests:
                return f"the suite is fooled: {test} also passes where what it expects is wrong"
            if not place.is_control and not result.succeeded:
                return f"of the suite fails {test}: {result.says}"
    return None


class Place(NamedTuple):
    """A place to run a test: the suite's own files or a control, and which build or control of several."""

    is_control: bool
    number: int


def _test_order(suite: Suite) -> list[tuple[str, Place]]:
    """Each test as often with a control as without, and every control tried, in an order that nobody can know.

    A build is a run of the answer, too, and may leave a guess which of the two it is to all that come after it: so
    there are several of each, one after the other. A test that keeps is run with a control as well, whose verdict
    counts for nothing: else its run would know that it lies beside the real files, and could tell the others by what
    runs share (which files of /usr are in the page cache).
    """
    chance, count = random.Random(secrets.randbits(64)), len(suite.controls)
    own = 1
    if suite.build is not None and suite.tests:
        own, count = RUNS_OF_A_SUITE // 2, max(RUNS_OF_A_SUITE // 2, count)
    turns = math.ceil(max(RUNS_OF_A_SUITE / 2, count) / len(suite.tests)) if suite.tests else 0
    tests = list(enumerate(suite.tests * turns))
    keeps = list(enumerate(suite.keeps))
    asked = [(test, Place(False, number % own)) for number, test in [*tests, *keeps]]
    asked += [(test, Place(True, number % count)) for number, test in [*tests, *(keeps if any(suite.controls) else ())]]
    chance.shuffle(asked)
    if suite.build is not None:
        order = {place: chance.random() for place in dict.fromkeys(place for _, place in asked)}
        asked.sort(key=lambda one: order[one[1]])
    return asked


def _in_fours(asked: Sequence[T]) -> Iterator[Sequence[T]]:
    """A few at once, so that the first that fails saves the others."""
    for at in range(0, len(asked), AT_ONCE):
        yield asked[at : at + AT_ONCE]


def _summarise(count: int, wrong: Mapping[str, str]) -> str:
    """Summarise for people and the log: it names cases and what went wrong, never what was expected."""
    said = f"{count - len(wrong)} of {count} cases"
    return f"{said}; {_few(wrong)}" if wrong else said


def _few(wrong: Mapping[str, str]) -> str:
    shown = [f"{name}: {why}" for name, why in list(wrong.items())[:SHOWN_FAULTS]]
    if (more := len(wrong) - SHOWN_FAULTS) > 0:
        reasons = Counter(list(wrong.values())[SHOWN_FAULTS:]).most_common(1)[0][0]
        shown.append(f"and {more} more, mostly {reasons}")
    return "; ".join(shown)
