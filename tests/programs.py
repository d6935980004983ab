"""Our programs as forks of one process that has imported all they need, which saves a second each.

A test of what a program imports must start Python anew.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import random
import runpy
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.context import ForkServerContext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ratchet.service import failpoint

REPOSITORY = Path(__file__).parents[1]
STREAMS = ("in", "out", "err")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the tests' environment, with these settings of Ratchet and no others."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RATCHET_")}
    return {**inherited, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "200", **settings}


def run_module(
    module: str, *arguments: str, folder: Path, settings: Mapping[str, str], stdin: str = "", timeout_s: float = 90
) -> Ran:
    """Run `python -m module arguments` in `folder`. If it does not end in time, kill it and raise TimeoutError."""
    forks = _forks()
    with TemporaryDirectory() as streams:
        places = [Path(streams) / name for name in STREAMS]
        places[0].write_text(stdin)
        typed = (module, *arguments)
        process = forks.Process(target=_become, args=(typed, folder, environment(settings), places))
        process.start()
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"{' '.join(typed)} did not end in {timeout_s:g} s")
        _, out, err = (place.read_text(errors="replace") if place.exists() else "" for place in places)
        return Ran(process.exitcode, out, err)


class ForkedProgram:
    """A running `python -m module arguments`, with the methods of `subprocess.Popen`."""

    def __init__(
        self, module: str, *arguments: str, folder: Path, environment: Mapping[str, str], log: Path, detached: bool
    ) -> None:
        typed, places = (module, *arguments), [Path(os.devnull), log, log]
        self._process = _forks().Process(target=_serve, args=(typed, folder, dict(environment), places, detached))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        return code


def _forks() -> ForkServerContext:
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["tests.imported_programs"])
    return forks


def _serve(
    typed: tuple[str, ...], folder: Path, environment: dict[str, str], places: list[Path], detached: bool
) -> None:
    if detached:
        os.setsid()
    random.seed()  # each fork would draw the same
    _become(typed, folder, environment, places)


def _become(typed: tuple[str, ...], folder: Path, environment: dict[str, str], places: list[Path]) -> None:
    module = typed[0]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, place in enumerate(places):
        os.dup2(os.open(place, os.O_CREAT | os.O_APPEND | (os.O_WRONLY if number else os.O_RDONLY)), number)
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, "w" if n else "r", encoding=encoding) for n in range(3))
    sys.argv = [*typed]
    if "RATCHET_FAILPOINT" in environment:
        importlib.reload(failpoint)  # it reads the variable when it is imported; who imported it has its new globals
    sys.modules.pop(module if find_spec(module).submodule_search_locations is None else f"{module}.__main__", None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
