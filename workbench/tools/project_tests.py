"""The project's own tests: 5 operations, by the runner that fits the project, in the sandbox, on a copy without .git.

What is said of a run is what the project's code let its runner say: good for a model that mends the code, no verdict
on it (scorers judge from outside).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import re2
from pydantic import Field, StringConstraints

from workbench.tools.operation import Answer, Effect, Subject, ToolError, WorkspacePath, object_of
from workbench.tools.sandboxed import NOT_PROJECT, Order, Ran, in_project, limits_for, run_in_copy
from workbench.tools.workshop import Workshop

TESTS = Subject("tests")

Runner = Literal["pytest", "unittest", "node", "go", "cargo"]
TestName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_./][^\x00-\x1f]*$", max_length=500),
    Field(description="As test_list names it."),
]
Chosen = Annotated[Runner | None, Field(description="If the project has tests of several kinds.")]

HEAD, TAIL = 3_000, 9_000
"""Characters of a run's output that a model gets, from its beginning and its end."""
SLOWEST = 25


@dataclass(frozen=True, slots=True)
class Outcome:
    """`seconds` are of single tests, by name; not every runner says them."""

    passed: int
    failed: list[str]
    skipped: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Kind:
    """A runner: its commands, and how what it prints is read. `one` takes several names where it can."""

    program: str
    every: Sequence[str]
    one: Callable[[Sequence[str]], list[str]]
    list: Sequence[str]
    read: Callable[[str], Outcome]
    environment: Mapping[str, str] = field(default_factory=dict)


def read_pytest(output: str) -> Outcome:
    """Parse the output of `-v --durations=0`: a line for each test, and one for each time that was measured."""
    passed, skipped, failed, seconds, names = 0, 0, list[str](), dict[str, float](), list[str]()
    for line in output.splitlines():
        if found := _PYTEST.match(line):
            name, how = found[1], found[2]
            names.append(name)
            passed, skipped = passed + (how in ("PASSED", "XFAIL")), skipped + (how == "SKIPPED")
            if how in ("FAILED", "ERROR", "XPASS"):
                failed.append(name)
        elif found := _DURATION.match(line):
            seconds[found[2]] = seconds.get(found[2], 0.0) + float(found[1])
        elif (found := _PYTEST_ERROR.match(line)) and found[1] not in failed:
            failed.append(found[1])
    return Outcome(passed, failed, skipped, seconds, names)


_PYTEST = re2.compile(r"^(\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: .*)?$")
_PYTEST_ERROR = re2.compile(r"^ERROR (\S+)")
_DURATION = re2.compile(r"^ *([0-9.]+)s (?:call|setup|teardown) +(\S.*)$")


def read_unittest(output: str) -> Outcome:
    passed, skipped, failed, names = 0, 0, list[str](), list[str]()
    for line in output.splitlines():
        if found := _UNITTEST.match(line):
            case, how = found[2], found[3]
            name = case if case.endswith(f".{found[1]}") else f"{case}.{found[1]}"
            names.append(name)
            passed, skipped = passed + (how == "ok"), skipped + how.startswith("skipped")
            if how in ("FAIL", "ERROR"):
                failed.append(name.removeprefix("unittest.loader._FailedTest."))
    return Outcome(passed, failed, skipped, names=names)


_UNITTEST = re2.compile(r"^(\w+) \(([\w.]+)\).* \.\.\. (ok|FAIL|ERROR|skipped.*|expected failure)$")


def read_tap(output: str) -> Outcome:
    """Parse node's reporter `tap`: subtests are indented, and counted where they have none of their own."""
    passed, skipped, failed, seconds, names, last = 0, 0, list[str](), dict[str, float](), list[str](), ""
    for line in output.splitlines():
        if found := _TAP.match(line):
            last = found[2].replace("\\#", "#").strip()
            directive = found[3] or ""
            if last.endswith((".js", ".mjs", ".cjs", ".ts")) and "/" in last:
                last = ""  # the file, as a test of its own
                continue
            names.append(last)
            if "SKIP" in directive or "TODO" in directive:
                skipped += 1
            elif found[1] == "ok":
                passed += 1
            else:
                failed.append(last)
        elif (found := _TAP_TIME.match(line)) and last:
            seconds[last] = float(found[1]) / 1000
    return Outcome(passed, failed, skipped, seconds, names)


_TAP = re2.compile(r"^ *(ok|not ok) \d+ - (.*?)( # (?:SKIP|TODO).*)?$")
_TAP_TIME = re2.compile(r"^ *duration_ms: ([0-9.]+)")


def read_go(output: str) -> Outcome:
    """Parse the output of `go test -json`."""
    passed, skipped, failed, seconds, names = 0, 0, list[str](), dict[str, float](), list[str]()
    for line in output.splitlines():
        event = object_of(line)
        name, how = event.get("Test"), event.get("Action")
        if not isinstance(name, str):
            if how == "fail" and isinstance(event.get("Package"), str) and not names:
                failed.append(f"{event['Package']} (it does not build)")
            continue
        if how in ("pass", "fail", "skip"):
            names.append(name)
            seconds[name] = float(event.get("Elapsed") or 0.0)
            passed, skipped = passed + (how == "pass"), skipped + (how == "skip")
            if how == "fail":
                failed.append(name)
    return Outcome(passed, failed, skipped, seconds, names)


def read_cargo(output: str) -> Outcome:
    passed, skipped, failed, names = 0, 0, list[str](), list[str]()
    for line in output.splitlines():
        if found := _CARGO.match(line):
            names.append(found[1])
            passed, skipped = passed + (found[2] == "ok"), skipped + found[2].startswith("ignored")
            if found[2] == "FAILED":
                failed.append(found[1])
        elif found := _CARGO_LIST.match(line):
            names.append(found[1])
    return Outcome(passed, failed, skipped, names=names)


_CARGO = re2.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored.*)$")
_CARGO_LIST = re2.compile(r"^(\S+): test$")


def _escape(name: str) -> str:
    """Escape a name for the pattern of a runner that takes one."""
    return "".join(f"\\{one}" if one in r".*+?^${}()|[]\/" else one for one in name)


PYTEST = (
    "python3",
    "-m",
    "pytest",
    "-v",
    "--tb=short",
    "--color=no",
    "-p",
    "no:cacheprovider",
    "--durations=0",
    "--durations-min=0",
)
UNITTEST_LIST = """
import sys, unittest
waiting = [unittest.defaultTestLoader.discover(".")]
while waiting:
    for one in waiting.pop():
        waiting.append(one) if isinstance(one, unittest.TestSuite) else print(one.id(), "... listed")
"""
KINDS: Mapping[Runner, Kind] = {
    "pytest": Kind(
        "python3",
        PYTEST,
        lambda names: [*PYTEST, "--", *names],
        ("python3", "-m", "pytest", "--collect-only", "-q", "--color=no", "-p", "no:cacheprovider"),
        read_pytest,
        {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "100"},
    ),
    "unittest": Kind(
        "python3",
        ("python3", "-m", "unittest", "discover", "-v"),
        lambda names: ["python3", "-m", "unittest", "-v", *names],
        ("python3", "-c", UNITTEST_LIST),
        read_unittest,
        {"PYTHONDONTWRITEBYTECODE": "1"},
    ),
    "node": Kind(
        "node",
        ("node", "--test", "--test-reporter=tap"),
        lambda names: [
            "node",
            "--test",
            "--test-reporter=tap",
            *(f"--test-name-pattern=^{_escape(n)}$" for n in names),
        ],
        ("node", "--test", "--test-reporter=tap"),
        read_tap,
    ),
    "go": Kind(
        "go",
        ("go", "test", "-json", "-vet=off", "./..."),
        lambda names: ["go", "test", "-json", "-vet=off", "-run", f"^({'|'.join(map(_escape, names))})$", "./..."],
        ("go", "test", "-vet=off", "-list", ".", "./..."),
        read_go,
        {
            "GOCACHE": "/tmp/go-cache",
            "GOPATH": "/tmp/go",
            "GOPROXY": "off",
            "GOFLAGS": "-mod=mod",
            "GOTOOLCHAIN": "local",
        },
    ),
    "cargo": Kind(
        "cargo",
        ("cargo", "test", "--offline", "--no-fail-fast"),
        lambda names: ["cargo", "test", "--offline", "--no-fail-fast", "--", "--exact", *names],
        ("cargo", "test", "--offline", "--", "--list"),
        read_cargo,
        {"CARGO_TARGET_DIR": "/tmp/target", "CARGO_HOME": "/tmp/cargo"},
    ),
}


def detect(paths: Sequence[str], texts: Mapping[str, str]) -> list[Runner]:
    """The runners that fit a project, from its paths and from the texts of its top files. Pure."""
    names = {PurePosixPath(path).name for path in paths}
    python = any((name.startswith("test") and name.endswith(".py")) or name.endswith("_test.py") for name in names)
    found: list[Runner] = []
    if python or names & {"pytest.ini", "conftest.py"} or "[tool.pytest" in texts.get("pyproject.toml", ""):
        found.append("pytest")
    if any(name.endswith((".test.js", ".test.mjs", ".test.cjs")) for name in names) or "package.json" in paths:
        found.append("node")
    if "go.mod" in paths:
        found.append("go")
    if "Cargo.toml" in paths:
        found.append("cargo")
    return found


@TESTS.operation(Effect.RUNS)
async def test_list(at: Workshop, runner: Chosen = None) -> Answer:
    """List the project's tests by name, as test_run_one takes them."""
    chosen = await _runner(at, runner)
    kind = KINDS[chosen]
    ran = await _run(at, chosen, list(kind.list))
    match chosen:
        case "pytest":
            names = [line for line in ran.stdout.splitlines() if "::" in line and not line.startswith(("ERROR", " "))]
        case "unittest":
            names = [
                line.removesuffix(" ... listed") for line in ran.stdout.splitlines() if line.endswith(" ... listed")
            ]
        case "go":
            names = [line for line in ran.stdout.splitlines() if line.startswith(("Test", "Example", "Fuzz"))]
        case _:
            names = kind.read(ran.stdout).names
    if not names:
        raise ToolError("not_found", f"{chosen} finds no tests: {_shorten_output(ran)}")
    return {"runner": chosen, "tests": names}


@TESTS.operation(Effect.RUNS)
async def test_run(
    at: Workshop,
    runner: Chosen = None,
    paths: Annotated[
        tuple[WorkspacePath, ...], Field(max_length=100, description="Files or folders; pytest only.")
    ] = (),
) -> Answer:
    """Run all tests of the project, in the sandbox. Names what failed, with the end of the output."""
    chosen = await _runner(at, runner)
    if paths and chosen != "pytest":
        raise ToolError("arguments", f"{chosen} takes no paths here: test_run_one takes names")
    command = list(KINDS[chosen].every)
    return await _answer(at, chosen, [*command, "--", *map(at.tree.clean, paths)] if paths else command)


@TESTS.operation(Effect.RUNS)
async def test_run_one(at: Workshop, name: TestName, runner: Chosen = None) -> Answer:
    """Run one test by its name."""
    chosen = await _runner(at, runner)
    answer = await _answer(at, chosen, KINDS[chosen].one([name]), keep=False)
    if answer["passed"] + len(answer["failed"]) + answer["skipped"] == 0:
        raise ToolError("not_found", f"{chosen} ran no test {name!r}: test_list names them. {answer['output'][-600:]}")
    return answer


@TESTS.operation(Effect.RUNS)
async def test_run_failed(at: Workshop, runner: Chosen = None) -> Answer:
    """Run again what failed in the last test_run."""
    chosen = await _runner(at, runner)
    failed = at.failed_tests.get(chosen)
    if failed is None:
        raise ToolError("conflict", f"nothing was run with {chosen} yet: test_run first")
    if not failed:
        raise ToolError("conflict", "nothing failed in the last run: there is nothing to run again")
    return await _answer(at, chosen, KINDS[chosen].one([name for name in failed if not name.startswith("-")]))


@TESTS.operation(Effect.RUNS)
async def test_timing(at: Workshop, runner: Chosen = None) -> Answer:
    """Run all tests and say which took longest (seconds). Not with cargo and unittest, which don't say it."""
    chosen = await _runner(at, runner)
    if chosen in ("cargo", "unittest"):
        raise ToolError("arguments", f"{chosen} says no times of single tests: test_run says how long all took")
    ran = await _run(at, chosen, list(KINDS[chosen].every))
    outcome = KINDS[chosen].read(ran.stdout)
    if not outcome.seconds:
        raise ToolError("not_found", f"{chosen} said no times: {_shorten_output(ran)}")
    slowest = sorted(outcome.seconds.items(), key=lambda one: -one[1])[:SLOWEST]
    return {
        "runner": chosen,
        "slowest": [{"test": name, "seconds": round(seconds, 4)} for name, seconds in slowest],
        "seconds": round(sum(outcome.seconds.values()), 3),
    }


async def _runner(at: Workshop, wanted: Runner | None) -> Runner:
    """Raises ToolError where the project has no tests of that kind, or of several and none was named."""

    def find_runners() -> list[Runner]:
        walked = at.tree.walk(".", at.policy.limits.entries, NOT_PROJECT | {"node_modules"})
        paths = [entry.path for entry in walked if entry.kind == "file"]
        texts = {
            name: at.tree.read(name, 1_000_000).decode("utf-8", "replace")
            for name in ("pyproject.toml",)
            if name in paths
        }
        return detect(paths, texts)

    runners = await at.look(find_runners)
    if "pytest" in runners and not at.policy.tests.mounts and _pytest_packages() is None:
        runners[runners.index("pytest")] = "unittest"
    if wanted == "unittest" and {"pytest", "unittest"} & set(runners):
        return wanted
    if wanted is not None and wanted not in runners:
        raise ToolError(
            "not_found", f"the project has no tests for {wanted}, but for {', '.join(runners) or 'nothing'}"
        )
    if not runners:
        raise ToolError("not_found", "no tests are found: no test_*.py, package.json, go.mod or Cargo.toml")
    if wanted is None and len(runners) > 1:
        raise ToolError("arguments", f"the project has tests of several kinds: name the runner, {' or '.join(runners)}")
    return wanted or runners[0]


def _pytest_packages() -> Path | None:
    """The folder of pytest, of the Python that /usr/bin/python3 is as well."""
    found = importlib.util.find_spec("pytest")
    system = Path(f"/usr/lib/python{sys.version_info.major}.{sys.version_info.minor}")
    return Path(found.origin).parents[1] if found and found.origin and system.is_dir() else None


async def _run(at: Workshop, runner: Runner, command: list[str]) -> Ran:
    tests, kind = at.policy.tests, KINDS[runner]
    mounts = {str(folder): folder for folder in tests.mounts}
    environment = dict(kind.environment)
    if runner == "pytest" and not mounts and (packages := _pytest_packages()):
        mounts[str(packages)] = packages
        environment["PYTHONPATH"] = f"{packages}:."
    limits = limits_for(
        at.policy.limits.tree_bytes, tests.seconds, tests.memory_bytes, tests.processes, at.policy.limits.entries
    )
    environment |= {**tests.environment, "PATH": ":".join((*tests.path, "/usr/local/bin", "/usr/bin", "/bin"))}
    ran = await run_in_copy(at, Order(["/usr/bin/env", *command], limits, in_project, environment, mounts))
    if ran.code == 127:
        raise ToolError(
            "ours",
            f"{kind.program} is not there in the sandbox, which sees /usr: install it, or mount it by the policy",
        )
    return ran


async def _answer(at: Workshop, runner: Runner, command: list[str], *, keep: bool = True) -> Answer:
    ran = await _run(at, runner, command)
    outcome = KINDS[runner].read(f"{ran.stdout}\n{ran.stderr}" if runner in ("unittest", "cargo") else ran.stdout)
    if keep:
        at.failed_tests[runner] = outcome.failed
    return {
        "runner": runner,
        "ok": ran.code == 0 and not outcome.failed,
        "passed": outcome.passed,
        "failed": outcome.failed,
        "skipped": outcome.skipped,
        "exit_code": ran.code,
        "output": _shorten_output(ran),
    }


def _shorten_output(ran: Ran) -> str:
    """Beginning and end of what was said: the end has the reasons."""
    text = "\n".join(part.strip() for part in (ran.stdout, ran.stderr) if part.strip())
    if len(text) <= HEAD + TAIL:
        return text
    return f"{text[:HEAD]}\n… {len(text) - HEAD - TAIL:,} characters left out …\n{text[-TAIL:]}"
