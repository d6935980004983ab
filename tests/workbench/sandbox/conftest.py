"""Ways to run a job: as root and as an ordinary user, held by cgroups and measured."""

from __future__ import annotations

import os
import pickle
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.workbench.sandbox.targets import targets
from workbench.sandbox import bubblewrap, cgroup
from workbench.sandbox.cgroup import Cgroups
from workbench.sandbox.job import Job, Result
from workbench.sandbox.running import Stop, run
from workbench.sandbox.syscalls import filters

ROOT = Path(__file__).parents[3]
USER = 54_321
IS_ROOT = os.geteuid() == 0
WAYS = ("root-measured", "root-cgroup", "user-measured", "user-cgroup")
OF_EACH_USER = ("root-cgroup", "user-measured")
"""The ways for tests that have nothing to do with cgroups."""


class Direct:
    def __init__(self, cgroups: Cgroups | None) -> None:
        self._cgroups = cgroups

    def __call__(self, job: Job) -> Result:
        stop = Stop()
        try:
            return run(job, filters(), self._cgroups, stop)
        finally:
            stop.close()


class AsUser:
    """Runs jobs in a process that gave up root's privileges."""

    def __init__(self, cgroups: Cgroups | None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.workbench.sandbox.as_user", str(USER), pickle.dumps(cgroups).hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )

    def __call__(self, job: Job) -> Result:
        assert self._process.stdin and self._process.stdout
        pickle.dump(job, self._process.stdin)
        self._process.stdin.flush()
        outcome = pickle.load(self._process.stdout)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, Result)
        return outcome

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def of_our_own(cgroups: Cgroups, stack: ExitStack) -> Cgroups:
    """Folders below, where nobody else on this machine makes groups or sweeps them."""
    folders = tuple(folder / f"ratchet-test-{secrets.token_hex(4)}" for folder in cgroups.folders)
    for folder in folders:
        folder.mkdir()
        stack.callback(folder.rmdir)
    return Cgroups(cgroups.version, folders)


def owned_by_the_user(cgroups: Cgroups, stack: ExitStack) -> Cgroups:
    """Folders below root's that the user may make groups in."""
    below = of_our_own(cgroups, stack)
    for folder in below.folders:
        for path in (folder, *folder.iterdir()):
            os.chown(path, USER, USER)
    return below


@pytest.fixture(scope="session")
def needs_bubblewrap() -> None:
    assert bubblewrap.missing_programs() == [], "sh infra/setup-debian.sh installs it"


@pytest.fixture(scope="session", params=WAYS)
def run_job(request: pytest.FixtureRequest, needs_bubblewrap: None) -> Iterator[Direct | AsUser]:
    who, held = request.param.split("-")
    if who == "root" and not IS_ROOT:
        pytest.skip("the tests are not run by root")
    cgroups = cgroup.find() if held == "cgroup" else None
    if held == "cgroup" and cgroups is None:
        pytest.skip("no cgroup can be made on this machine")
    with ExitStack() as stack:
        if who == "root":
            yield Direct(cgroups)
            return
        if IS_ROOT and cgroups is not None:
            cgroups = owned_by_the_user(cgroups, stack)
        runner = AsUser(cgroups)
        stack.callback(runner.close)
        yield runner


@pytest.fixture(scope="session")
def run_here(needs_bubblewrap: None) -> Direct:
    """Run jobs as the user of the tests, measured."""
    return Direct(None)


@pytest.fixture(scope="session")
def reachable() -> Iterator[dict[str, Any]]:
    """Targets of each kind, for `attacks`."""
    with targets(victim=USER if IS_ROOT else None) as found:
        yield found
