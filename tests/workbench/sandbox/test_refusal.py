"""A machine that can't hold a sandbox is told so, with what mends it; no silent fallback."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workbench.sandbox.conftest import Direct
from workbench.sandbox import container_profile
from workbench.sandbox.job import End, Job, Result, SandboxRefused
from workbench.sandbox.refusal import Machine, sentence
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.self_test import self_test
from workbench.sandbox.settings import SandboxSettings

ROOT = Path(__file__).parents[3]
NO_NAMESPACE = "bwrap: No permissions to create new namespace"


@pytest.mark.parametrize(
    ("machine", "said", "mended_by"),
    [
        (Machine(missing=("bwrap",)), "There is no sandbox", "apt-get install bubblewrap"),
        (Machine(most_user_namespaces=0), NO_NAMESPACE, "sysctl -w user.max_user_namespaces"),
        (Machine(unprivileged_user_namespaces=0), NO_NAMESPACE, "sysctl -w kernel.unprivileged_userns_clone=1"),
        (Machine(apparmor_restricts=1), NO_NAMESPACE, "infra/sandbox/apparmor-bwrap"),
        (Machine(is_container=True, has_filter=True), NO_NAMESPACE, "seccomp=infra/sandbox/docker-seccomp.json"),
        (
            Machine(is_container=True, has_filter=True),
            "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
            "systempaths=unconfined",
        ),
        (Machine(has_filter=True), NO_NAMESPACE, "seccomp=infra/sandbox/docker-seccomp.json"),
        (Machine(), NO_NAMESPACE, "No setting that is known"),
    ],
)
def test_the_sentence_says_what_to_type(machine: Machine, said: str, mended_by: str) -> None:
    told = sentence(machine, said)

    assert told.startswith(said)
    assert mended_by in told
    assert "docs/sandbox.md" in told


def test_files_that_a_sentence_names_are_there() -> None:
    from workbench.sandbox import refusal

    assert (ROOT / refusal.APPARMOR_PROFILE).exists()
    assert (ROOT / refusal.SECCOMP_PROFILE).exists()


UNDER_A_FILTER = """
import sys, json, errno, pyseccomp
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.settings import SandboxSettings
from workbench.sandbox.job import SandboxRefused
asked = json.loads(sys.argv[1])
if asked["refused"]:
    filter = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in asked["refused"]:
        filter.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
    filter.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    filter.add_rule(pyseccomp.ERRNO(errno.EPERM), "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, 0x20000, 0x20000))
else:
    filter = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.ENOSYS))
    for name in asked["allowed"]:
        try: filter.add_rule(pyseccomp.ALLOW, name)
        except (OSError, ValueError): pass
filter.load()
try:
    print("works:", Sandbox.open(SandboxSettings()).facts.says)
except SandboxRefused as error:
    print("refused:", error)
"""


def under_a_filter(**asked: object) -> str:
    run = subprocess.run(
        [sys.executable, "-c", UNDER_A_FILTER, json.dumps({"refused": [], "allowed": [], **asked})],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return run.stdout + run.stderr


def test_a_filter_as_dockers_default_is_refused_with_the_profile_that_ships(needs_bubblewrap: None) -> None:
    told = under_a_filter(refused=["unshare", "mount", "pivot_root", "umount2"])

    assert told.startswith("refused: ")
    assert "infra/sandbox/docker-seccomp.json" in told


def test_within_the_profile_that_ships_the_self_test_passes(needs_bubblewrap: None) -> None:
    names = json.loads((ROOT / container_profile.PLACE).read_text())["syscalls"][0]["names"]

    assert under_a_filter(allowed=names).startswith("works: ")


def test_the_profile_that_ships_is_the_one_that_the_code_writes() -> None:
    assert (ROOT / container_profile.PLACE).read_text() == container_profile.text()


def test_the_profile_gives_no_more_than_namespaces() -> None:
    names = set(container_profile.profile()["syscalls"][0]["names"])

    assert names.isdisjoint({"bpf", "keyctl", "ptrace", "io_uring_setup", "kexec_load", "init_module", "clone3"})


def test_a_sandbox_that_leaks_is_refused_with_what_got_through(needs_bubblewrap: None) -> None:
    """The double of a sandbox that holds nothing: it runs its job as it is."""

    def unheld(job: Job) -> Result:
        run = subprocess.run(job.command, capture_output=True, timeout=60, check=False)
        return Result(End.EXITED, "", exit_code=run.returncode, stdout=run.stdout, stderr=run.stderr)

    with pytest.raises(SandboxRefused, match=r"the sandbox leaks: .*files.*network"):
        self_test(unheld)


def test_limits_that_do_not_hold_are_refused(run_here: Direct) -> None:
    def without_limits(job: Job) -> Result:
        if "reached" not in job.command[-1]:
            return run_here(job)
        return Result(End.EXITED, "it exited with 0", exit_code=0, stdout=b"workspace memory\n")

    with pytest.raises(SandboxRefused, match="no limit holds processes"):
        self_test(without_limits)


def test_a_named_cgroup_that_cannot_be_used_is_refused(tmp_path: Path, needs_bubblewrap: None) -> None:
    with pytest.raises(SandboxRefused, match="RATCHET_SANDBOX_CGROUP"):
        Sandbox.open(SandboxSettings(sandbox_cgroup=tmp_path / "none"))


def test_what_a_filter_answers_is_as_if_the_call_did_not_exist(run_here: Direct) -> None:
    code = "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.unshare(0); print(ctypes.get_errno())"

    result = run_here(Job(["python3", "-I", "-c", code]))

    assert result.stdout.strip() == str(errno.ENOSYS).encode()
    assert os.strerror(errno.ENOSYS) == "Function not implemented"
