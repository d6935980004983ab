"""Attacks that work outside don't work inside, in each of the ways a job is run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.workbench.sandbox.conftest import OF_EACH_USER, WAYS, AsUser, Direct
from tests.workbench.sandbox.in_a_container import LIMITS, NAMES, SOURCE
from workbench.sandbox.job import End, Job

MAY_LACK = """
    bpf calls_of_32_bits change_a_mount disk_device handle_of_a_file hold_rules_of_landlock internet io_uring
    kernel_crypto_socket kernel_messages limit_a_neighbour metadata_service perf_events raise_a_limit swap sysrq
    tcp_over_ipv6 user_faults vsock_socket
"""
"""What a machine may not have, or have switched off for everybody; there nothing is proved, and that is said."""

LIMITED = """
    fill_shared_memory fill_the_workspace fill_tmp fork_bomb hide_from_the_oom_killer limit_a_neighbour memory_bomb
    memory_bomb_of_many raise_a_limit shared_memory_bomb thread_bomb
"""
"""What a cgroup holds, or a watch where there is none: tried in every way. The rest is held by the same arguments of
bubblewrap and the same filter in both, and tried once by root and once by a user."""


def attack(name: str, target: dict[str, Any]) -> list[str]:
    return ["/usr/bin/python3", "-I", "-S", "-c", SOURCE, name, json.dumps(target)]


@pytest.fixture(scope="session")
def works_outside(reachable: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Each attack's positive control: the same text, the same target, no sandbox. Tried once."""
    leaked = os.open("/dev/full", os.O_WRONLY)
    folder = tmp_path_factory.mktemp("outside")

    @cache
    def outside(name: str) -> str:
        run = subprocess.run(
            attack(name, reachable),
            cwd=folder,
            pass_fds=[leaked],
            env={"SECRET": reachable["secret"]},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return run.stdout or f"no word, exit code {run.returncode}: {run.stderr[-300:]}"

    yield outside
    os.close(leaked)


@pytest.mark.parametrize(
    ("run_job", "name"),
    [(way, name) for way in WAYS for name in NAMES if way in OF_EACH_USER or name in LIMITED.split()],
    indirect=["run_job"],
    scope="session",
)
def test_an_attack_that_works_outside_is_held_inside(
    name: str, run_job: Direct | AsUser, works_outside: Any, reachable: dict[str, Any]
) -> None:
    outside = works_outside(name)
    if outside != "THROUGH" and (name in MAY_LACK.split() or os.geteuid() != 0):
        pytest.skip(f"not to be had on this machine: outside, {outside}")
    assert outside == "THROUGH", "the positive control does not work: being held inside proves nothing"

    result = run_job(Job(attack(name, reachable), limits=LIMITS))

    said = result.stdout.decode()
    assert said.startswith("held:") or result.end in (End.MEMORY, End.SIGNALLED), (result, said)
    assert "THROUGH" not in said


def test_there_are_as_many_attacks_as_are_claimed() -> None:
    assert len(NAMES) >= 53
    assert set(LIMITED.split()) <= set(NAMES)
