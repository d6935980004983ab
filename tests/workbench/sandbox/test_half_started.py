"""What is left of a run whose starter was killed while it was set up; the next that opens a sandbox ends it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.workbench.sandbox.conftest import ROOT
from workbench.sandbox import half_started


def test_a_run_whose_starter_was_killed_while_it_was_set_up_is_ended_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(half_started, "PREFIX", "of-a-test-")  # or whoever opens a sandbox meanwhile sweeps it
    command = [sys.executable, "-m", "tests.workbench.sandbox.killed_starter", half_started.PREFIX]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=True)
    left = int(killed.stdout.split()[0])
    ours = subprocess.Popen(
        ["bwrap", "--ro-bind", "/", "/", "sh", "-c", "read word", half_started.owner()], stdin=subprocess.PIPE
    )
    try:
        half_started.sweep()  # or that of another service on this machine, meanwhile

        wait_until(lambda: not Path(f"/proc/{left}").exists() or state(left) == "Z", "it is gone")
        assert ours.poll() is None, "what belongs to a process that is there goes on"
    finally:
        ours.kill()
        ours.wait()


def test_runs_of_a_container_are_not_those_of_whoever_looks_at_them_from_outside() -> None:
    """Their owner's id is that of another namespace, so that here it is nobody's."""
    here = str(half_started.NAMESPACE.readlink())
    theirs = half_started.owner().replace(here, "pid:[1]").replace(f"{os.getpid()}-", "999999999-")
    running = subprocess.Popen(["bwrap", "-c", "read word", theirs], executable="/bin/sh", stdin=subprocess.PIPE)
    try:
        assert here in half_started.owner()
        assert running.pid not in half_started.sweep()
        assert running.poll() is None
    finally:
        running.kill()
        running.wait()


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
