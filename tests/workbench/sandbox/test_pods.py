"""What stands around the sandbox: a container that is refused unless closed, in which it does without /proc."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from tests.workbench.sandbox.conftest import IS_ROOT
from workbench.sandbox import container_profile, metrics
from workbench.sandbox.job import SandboxRefused
from workbench.sandbox.kinds import Isolation, Surroundings, faults, look
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.settings import SandboxSettings

ROOT = Path(__file__).parents[3]
CLOSED = Surroundings(
    user=10_001,
    capabilities=frozenset(),
    no_new_privileges=True,
    has_filter=True,
    root_is_read_only=True,
    has_cluster_token=False,
    is_gvisor=False,
)
ON_GVISOR = replace(CLOSED, is_gvisor=True, has_filter=False)
"""Its kernel shows no filter of the host's."""


@pytest.mark.parametrize(
    ("isolation", "found", "said"),
    [
        (Isolation.POD, replace(CLOSED, user=0), "runAsUser"),
        (Isolation.POD, replace(CLOSED, capabilities=frozenset({21})), "capabilities.drop"),
        (Isolation.POD, replace(CLOSED, no_new_privileges=False), "allowPrivilegeEscalation: false"),
        (Isolation.POD, replace(CLOSED, has_filter=False), "infra/sandbox/docker-seccomp.json"),
        (Isolation.POD, replace(CLOSED, root_is_read_only=False), "readOnlyRootFilesystem: true"),
        (Isolation.POD, replace(CLOSED, has_cluster_token=True), "automountServiceAccountToken: false"),
        (Isolation.GVISOR, CLOSED, "runtimeClassName: gvisor"),
        (Isolation.GVISOR, replace(ON_GVISOR, user=0), "runAsUser"),
    ],
)
def test_what_is_missing_around_is_said_with_what_mends_it(
    isolation: Isolation, found: Surroundings, said: str
) -> None:
    (fault,) = faults(isolation, found)

    assert said in fault


def test_nothing_is_missing_where_all_is_there_and_bubblewrap_alone_asks_for_nothing() -> None:
    assert faults(Isolation.POD, CLOSED) == faults(Isolation.GVISOR, ON_GVISOR) == []
    assert faults(Isolation.BWRAP, look()) == []


async def test_in_a_container_a_refusal_is_shown_before_the_service_ends(tmp_path: Path) -> None:
    not_closed = SandboxSettings(sandbox_isolation=Isolation.POD)
    no_cgroup = SandboxSettings(sandbox_cgroup=tmp_path)

    with pytest.raises(SandboxRefused):
        await Sandbox.opened_or_shown(no_cgroup, shown_s=600)
    before = REGISTRY.get_sample_value("ratchet_sandbox_refused")
    with pytest.raises(SandboxRefused, match="RATCHET_SANDBOX_ISOLATION=pod, but "):
        await Sandbox.opened_or_shown(not_closed, shown_s=0)

    assert (before, REGISTRY.get_sample_value("ratchet_sandbox_refused")) == (0, 1)
    metrics.refused.set(0)


def in_a_pod(isolation: str, wrong: str = "") -> str:
    asked = {
        "isolation": isolation,
        "wrong": wrong,
        "allowed": json.loads((ROOT / container_profile.PLACE).read_text())["syscalls"][0]["names"],
    }
    command = [sys.executable, "-m", "tests.workbench.sandbox.in_a_pod", json.dumps(asked)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    return run.stdout + run.stderr


needs_root = pytest.mark.skipif(not IS_ROOT, reason="the tests are not run by root, who can make what a runtime makes")


@needs_root
def test_in_a_pod_with_a_masked_proc_it_holds_without_one_of_its_own(needs_bubblewrap: None) -> None:
    told = in_a_pod("pod")

    assert told.startswith("works: ")
    assert told.endswith("in a container without privileges, without /proc\nprocesses: []\n")


@needs_root
def test_and_is_refused_there_where_nobody_said_that_it_is_a_pod(needs_bubblewrap: None) -> None:
    told = in_a_pod("bwrap")

    assert told.startswith("refused: ")
    assert "RATCHET_SANDBOX_ISOLATION=pod" in told


@needs_root
def test_a_pod_that_can_do_more_than_it_says_is_refused(needs_bubblewrap: None) -> None:
    assert "the container keeps capabilities" in in_a_pod("pod", wrong="capabilities")
