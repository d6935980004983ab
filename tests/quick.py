"""`pytest --quick`: the tests that need no broker, no model, no browser and no second Python.

What a test needs is read from its source, not marked. A file that imports a model or a browser, also through others, is
not even imported. A test is left out by what its body, its fixtures, and functions of the tests that they call, import
or start: another Python costs a second of imports. `tests/acceptance` runs whole fleets, so it is left out, and so are
the files of LONG.
Properties are tried on fewer examples, and repetitions are fewer (`rounds`). Temporary files lie in memory.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from inspect import unwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent
FLEETS = ROOT / "tests" / "acceptance"
LONG = {
    ROOT / "tests" / file
    for file in (
        "bench/test_decision.py",
        "infra/test_program_mistakes.py",
        "infra/test_seeded_mistakes.py",
        "infra/test_stacks.py",
        "services/agent/engines/own_process/test_engine_process.py",
        "services/cli/eval/test_suites.py",
        "services/cli/harbor/test_harbor.py",
        "services/cli/verify/test_verify_workspaces.py",
        "services/manager/test_ledger_machine.py",
        "services/manager/test_postgres.py",
        "services/orchestrator/cascade/test_cascades.py",
        "services/orchestrator/ledger/test_broken_index.py",
        "services/orchestrator/promotion/test_evidence_pool.py",
        "services/orchestrator/test_learning.py",
        "services/orchestrator/test_team.py",
        "services/scorer/strategies/test_workspace_scores.py",
    )
}
"""Files that try hundreds of mistakes, tasks or programs: together as long as all others. Run them when you change what
they test."""
HEAVY_LIBRARIES = {"peft", "playwright", "schemathesis", "torch", "transformers", "trl"}
"""Libraries that leave a test out; schemathesis asks running services, and takes seconds to collect."""
BROKER_FIXTURE = "amqp_url"
PROGRAMS = {
    "PrivateBroker", "MeasuredBroker", "run_promtool", "executable", "set_forkserver_preload", "HiddenTests",
    "missing_programs",
}  # fmt: skip
"""Names by which tests and fixtures start a broker, Prometheus's tools, Python (`sys.executable`, a fork server), or
run programs in a sandbox, which asks for `missing_programs` first."""
QUICK = "quick"
EXAMPLES = 10
MEMORY, ROOM_BYTES = Path("/dev/shm"), 2 * 1024**3
"""The place of temporary files if there is room: syncing to a disk is a third of what such tests wait for."""

_IMPORT = re.compile(r"^(?:from ([\w.]+) import (\([^)]*\)|.*)|import (.*))", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests that need no broker, model or browser")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        gc.disable()
        settings.register_profile(QUICK, deadline=None, max_examples=EXAMPLES)
        settings.load_profile(QUICK)
        if has_room():
            os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def has_room() -> bool:
    """Tell whether temporary files may lie in memory."""
    return MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_BYTES


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt what was imported and collected from garbage collection: it stays to the end."""
    gc.freeze()
    gc.enable()


def rounds(whole: int, *, quick: int = EXAMPLES) -> int:
    """Return the number of examples or repetitions of a test: `whole`, or less with `--quick`."""
    return min(whole, quick) if settings.get_current_profile_name() == QUICK else whole


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file out (True), or leave the decision to pytest (None)."""
    imported = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    if not config.getoption("--quick") or imported.suffix != ".py":
        return None
    left_out = collection_path == FLEETS or collection_path in LONG or HEAVY_LIBRARIES & libraries(imported)
    return True if left_out else None


def leave_out_what_needs_much(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        needy = {item for item in items if isinstance(item, pytest.Function) and _needs_much(item)}
        config.hook.pytest_deselected(items=list(needy))
        items[:] = [item for item in items if item not in needy]


def _needs_much(test: pytest.Function) -> bool:
    """Tell whether a test is left out, by what its body and its fixtures import, and the programs that they name."""
    fixtures = (fixture.func for found in test._fixtureinfo.name2fixturedefs.values() for fixture in found)
    marked = BROKER_FIXTURE in test.fixturenames or test.get_closest_marker("broker") is not None
    return marked or any(map(is_heavy, (test.function, *fixtures)))


@cache
def is_heavy(function: Callable[..., object]) -> bool:
    """Tell whether a function, or one of the tests' own that it names, names a program or a heavy library."""
    names, seen = set[str](), set[object]()
    waiting = [unwrap(function)]
    while waiting:
        called = waiting.pop()
        if (code := getattr(called, "__code__", None)) is not None and called not in seen:
            seen.add(called)
            names |= set(code.co_names)
            found = (called.__globals__.get(name) for name in code.co_names)
            waiting += [one for other in found if _is_of_tests(other) for one in _functions(other)]
    modules = (ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in names if "." in name)
    brought = {name.split(".")[0] for name in names}.union(*(libraries(module) for module in modules))
    return bool(PROGRAMS & names or HEAVY_LIBRARIES & brought)


def _is_of_tests(value: object) -> bool:
    return str(getattr(value, "__module__", "")).split(".")[0] == "tests"


def _functions(value: Any) -> list[Callable[..., object]]:
    """Return a function, or the methods of a class."""
    named = vars(value).values() if isinstance(value, type) else (value,)
    return [unwrap(getattr(one, "__func__", one)) for one in named]


def libraries(file: Path) -> set[str]:
    """Return the foreign packages that importing a file imports, also through other files of ours."""
    seen: set[str] = set()
    waiting, found = [str(file)], set[str]()
    while waiting:
        if (path := waiting.pop()) not in seen:
            seen.add(path)
            ours, foreign = _imports(path)
            waiting += ours
            found |= foreign
    return found


@cache
def _imports(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return what a file imports at its top level: files of ours, and names of other packages."""
    ours, foreign = set[str](), set[str]()
    for module in _modules(Path(path).read_text()) if Path(path).is_file() else ():
        if _is_ours(module.split(".")[0]):
            ours |= _files(module)
        else:
            foreign.add(module.split(".")[0])
    return frozenset(ours), frozenset(foreign)


@cache
def _files(module: str) -> frozenset[str]:
    """Return the files that importing a module runs; of `a.b` both a/b.py and a/b/__init__.py: one is missing."""
    parts = module.split(".")
    packages = (ROOT.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1))
    return frozenset(map(str, (*packages, ROOT.joinpath(*parts).with_suffix(".py"))))


@cache
def _is_ours(package: str) -> bool:
    return (ROOT / package).is_dir()


def _modules(text: str) -> Iterator[str]:
    """Yield the imported modules; of `from a import b` both a and a.b, which need not be a module."""
    for source, names, plain in _IMPORT.findall(text):
        listed = [name.split()[0] for name in re.sub(r"#.*|[()]", "", names or plain).split(",") if name.strip()]
        yield from (f"{source}.{name}" for name in listed) if source else listed
        if source:
            yield source
