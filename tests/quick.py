"""`pytest --quick`: the tests that need no broker, no model, no browser and no second Python.

What a test needs is read off, not marked: a file needs a model or a browser if it imports one, at whatever remove, and
is then not even imported; a test needs what its body or one of its fixtures imports or starts, there or in functions
of the tests that they call; and `tests/acceptance` runs whole fleets. A Python of its own costs a test a second of
imports before it does anything: those that are killed, and programs as users start them, are for the whole suite.
Properties are tried on fewer examples, and what is done again and again is done less often (`rounds`). Temporary files
lie in memory.
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
HEAVY_LIBRARIES = {"peft", "playwright", "schemathesis", "torch", "transformers", "trl"}
"""schemathesis asks running services, and takes seconds to collect."""
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
"""Where temporary files lie if there is room: syncing files of a disk is a third of what such a test waits for."""

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
    """What was imported and collected stays to the end: it is not looked through again and again for garbage."""
    gc.freeze()
    gc.enable()


def rounds(whole: int, *, quick: int = EXAMPLES) -> int:
    """How many examples or repetitions, for a test that has a number of its own: `whole` unless it is `--quick`."""
    return min(whole, quick) if settings.get_current_profile_name() == QUICK else whole


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """True for what is left out; None leaves the decision to pytest."""
    if not config.getoption("--quick"):
        return None
    imported = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    return True if collection_path == FLEETS or HEAVY_LIBRARIES & libraries(imported) else None


def leave_out_what_needs_much(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        needy = {item for item in items if isinstance(item, pytest.Function) and _needs_much(item)}
        config.hook.pytest_deselected(items=list(needy))
        items[:] = [item for item in items if item not in needy]


def _needs_much(test: pytest.Function) -> bool:
    """By its own body and those of its fixtures: what they import there, and which programs they name."""
    fixtures = (fixture.func for found in test._fixtureinfo.name2fixturedefs.values() for fixture in found)
    marked = BROKER_FIXTURE in test.fixturenames or test.get_closest_marker("broker") is not None
    return marked or any(map(is_heavy, (test.function, *fixtures)))


@cache
def is_heavy(function: Callable[..., object]) -> bool:
    """Whether it, or a function or class of the tests that it names, names a program or imports what is heavy."""
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
    """Itself, or the methods of a class."""
    named = vars(value).values() if isinstance(value, type) else (value,)
    return [unwrap(getattr(one, "__func__", one)) for one in named]


def libraries(file: Path) -> set[str]:
    """Names of the packages, not of this repository, that importing a file imports at whatever remove."""
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
    """What a file imports at its top level: files of ours, and names of other packages."""
    ours, foreign = set[str](), set[str]()
    for module in _modules(Path(path).read_text()) if Path(path).is_file() else ():
        if _is_ours(module.split(".")[0]):
            ours |= _files(module)
        else:
            foreign.add(module.split(".")[0])
    return frozenset(ours), frozenset(foreign)


@cache
def _files(module: str) -> frozenset[str]:
    """Those that importing it runs. Of `a.b` both a/b.py and a/b/__init__.py, for one is not there."""
    parts = module.split(".")
    packages = (ROOT.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1))
    return frozenset(map(str, (*packages, ROOT.joinpath(*parts).with_suffix(".py"))))


@cache
def _is_ours(package: str) -> bool:
    return (ROOT / package).is_dir()


def _modules(text: str) -> Iterator[str]:
    """Of `from a import b` both a and a.b, which need not be a module."""
    for source, names, plain in _IMPORT.findall(text):
        listed = [name.split()[0] for name in re.sub(r"#.*|[()]", "", names or plain).split(",") if name.strip()]
        yield from (f"{source}.{name}" for name in listed) if source else listed
        if source:
            yield source
