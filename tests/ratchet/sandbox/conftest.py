"""Ways to run a job: as root and as an ordinary user, held by cgroups and measured."""

from __future__ import annotations

import os
import pickle
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ratchet.sandbox import bubblewrap, cgroup
from ratchet.sandbox.cgroup import Cgroups
from ratchet.sandbox.job import Job, Result
from ratchet.sandbox.running import Stop, run
from ratchet.sandbox.syscalls import filters

ROOT = Path(__file__).parents[3]
USER = 54_321
IS_ROOT = os.geteuid() == 0
WAYS = ("root-measured", "root-cgroup", "user-measured", "user-cgroup")


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
    """Jobs are run by a process that gave root's privileges up."""

    def __init__(self, cgroups: Cgroups | None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.ratchet.sandbox.as_user", str(USER), pickle.dumps(cgroups).hex()],
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


def owned_by_the_user(cgroups: Cgroups, stack: ExitStack) -> Cgroups:
    """Folders below root's that the user may make groups in."""
    folders = []
    for folder in cgroups.folders:
        own = folder / f"ratchet-test-{secrets.token_hex(4)}"
        own.mkdir()
        stack.callback(own.rmdir)
        for path in (own, *own.iterdir()):
            os.chown(path, USER, USER)
        folders.append(own)
    return Cgroups(cgroups.version, tuple(folders))


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
    """As the user of the tests, measured."""
    return Direct(None)


@pytest.fixture(scope="session")
def reachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Something to be reached of each kind, for `attacks`."""
    secret = secrets.token_hex(16)
    with ExitStack() as stack:
        folder = Path("/var/tmp", f"ratchet-attacked-{secret[:8]}")
        folder.mkdir(mode=0o755)
        stack.callback(shutil.rmtree, folder)
        (folder / "file").write_text(secret)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        tcp6 = _ipv6(stack)
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        threading.Thread(target=_echo, args=(udp,), daemon=True).start()
        unix, abstract = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        unix.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        abstract.bind(f"\0ratchet-{secret}")
        for listener in (unix, abstract):
            listener.listen(64)
        victim = stack.enter_context(
            subprocess.Popen(
                ["sleep", "600"],
                env={"SECRET": secret},
                **({"user": USER, "group": USER, "extra_groups": []} if IS_ROOT else {}),
            )
        )
        stack.callback(victim.kill)
        started = Path(f"/proc/{victim.pid}/stat").read_text().rpartition(")")[2].split()[19]
        yield {
            "port": tcp.getsockname()[1],
            "port6": tcp6,
            "udp": udp.getsockname()[1],
            "unix": str(folder / "socket"),
            "abstract": f"ratchet-{secret}",
            "file": str(folder / "file"),
            "secret": secret,
            "victim": victim.pid,
            "victim_started": started,
            "most_mib": 4,
            "most_processes": 16,
            "most_memory_mib": 192,
        }


def _ipv6(stack: ExitStack) -> int:
    try:
        server = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
    except OSError:
        return 1
    return int(server.getsockname()[1])


def _echo(server: socket.socket) -> None:
    while True:
        try:
            said, sender = server.recvfrom(100)
        except OSError:
            return
        server.sendto(said, sender)
