"""The wheel works where there is no checkout: built, installed into an empty environment, a fleet runs from there.

The environment has its libraries from the one that runs the tests, so that nothing is downloaded. A hook in each of
its processes writes down whatever it opens in the checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli.fleet.local_broker import server_folder
from tests.acceptance.test_up_down import free_amqp_port, free_base, processes_of
from tests.programs import REPOSITORY

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(400),
    pytest.mark.skipif(server_folder() is None, reason="RabbitMQ is not installed here, so none can be started"),
]
WATCH = """\
import os, sys

def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        path = os.path.abspath(arguments[0])
        if path.startswith({checkout!r} + os.sep) and not path.startswith(({libraries!r}, sys.prefix)):
            with open({log!r}, "a") as log:
                log.write(path + "\\n")

sys.addaudithook(watch)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=REPOSITORY)
    (wheel,) = folder.glob("ratchet-*.whl")
    environment = folder / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", str(environment), cwd=folder)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    run(*pip, "--disable-pip-version-check", str(wheel), cwd=folder)
    libraries = sysconfig.get_path("purelib")
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(f"{libraries}\nimport checkout_watch\n")
    watch = WATCH.format(checkout=str(REPOSITORY), libraries=libraries, log=str(folder / "opened"))
    (packages / "checkout_watch.py").write_text(watch)
    return environment


@pytest.fixture(scope="module")
def elsewhere(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder in which a fleet of that environment is up; it is down afterwards."""
    folder = tmp_path_factory.mktemp("elsewhere")
    ports = ("--port-base", str(free_base()), "--amqp-port", str(free_amqp_port()))
    try:
        ratchet(installed, folder, "up", "--engine", "echo", "--scorer", "verifier:exact", *ports)
        yield folder
    finally:
        ratchet(installed, folder, "down")
    assert processes_of(folder) == []


def run(*command: str, cwd: Path) -> str:
    """Run a command with nothing of the checkout in its environment, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RATCHET"))}
    ran = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def ratchet(installed: Path, folder: Path, *arguments: str) -> str:
    return run(str(installed / "bin" / "ratchet"), *arguments, cwd=folder)


def test_the_command_line_says_what_there_is(installed: Path, tmp_path: Path) -> None:
    assert "demo" in ratchet(installed, tmp_path, "--help")
    assert "file_read" in ratchet(installed, tmp_path, "tools", "list")


def test_a_fleet_of_the_wheel_answers_and_serves_its_page(installed: Path, elsewhere: Path) -> None:
    assert ratchet(installed, elsewhere, "submit", "hello", "--reference", "hello") == "hello\n"
    assert "small" in ratchet(installed, elsewhere, "status")
    ratchet(installed, elsewhere, "report", "--out", "report.html")
    assert (elsewhere / "report.html").stat().st_size > 100_000


def test_processes_and_demos_are_the_wheels_own(installed: Path, tmp_path: Path) -> None:
    names = ("demos.demo", "demos.toy.make", "demos.real.tasks", "services.trainer.train", "services.runner")
    print_files = f"import {', '.join(names)}, sys; print(*(sys.modules[name].__file__ for name in {names}), sep='\\n')"

    found = run(str(installed / "bin" / "python"), "-c", print_files, cwd=tmp_path).split()

    assert len(found) == len(names)
    assert [file for file in found if not file.startswith(str(installed))] == []


def test_nothing_was_read_from_the_checkout(installed: Path, elsewhere: Path) -> None:
    opened = installed.parent / "opened"
    before = opened.read_text() if opened.exists() else ""

    run(str(installed / "bin" / "python"), "-c", f"open({str(REPOSITORY / 'README.md')!r})", cwd=elsewhere)

    assert before == ""
    assert opened.read_text() == f"{REPOSITORY / 'README.md'}\n"  # the watch bites
