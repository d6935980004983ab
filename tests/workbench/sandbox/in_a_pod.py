"""A process in what Kubernetes makes of a restricted pod: `python -m tests.workbench.sandbox.in_a_pod`.

Its argument is JSON: which `isolation` it asks for, which system calls are `allowed` (all, if none), and what its pod
has `wrong`. As root it masks parts of /proc as container runtimes do, makes the root read-only, and gives itself up; it
says whether the sandbox holds, and what a job in it printed. A stand-in: no kubelet, no runtime.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource  # os.wait4 imports it when it is called
import subprocess
import sys
from pathlib import Path

import pyseccomp

from workbench.sandbox.job import Job, SandboxRefused
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.self_test import self_test
from workbench.sandbox.settings import SandboxSettings

USER = 54_321
NEW_MOUNTS, NO_NEW_PRIVILEGES, DROP_FROM_BOUNDING_SET = 0x20000, 38, 24
MASKED = ("kcore", "keys", "latency_stats", "timer_list", "sched_debug")
MASKED_FOLDERS = ("acpi", "scsi", "asound")
READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
"""Folders of /proc that Docker and containerd make read-only in their containers."""
LOOKS = """
import os
print("processes:", [name for name in os.listdir("/proc") if name.isdigit()])
"""
libc = ctypes.CDLL(None, use_errno=True)


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def mask_proc() -> None:
    for name in MASKED:
        if Path("/proc", name).exists():
            mount("--bind", "/dev/null", f"/proc/{name}")
    for name in MASKED_FOLDERS:
        if Path("/proc", name).is_dir():
            mount("-t", "tmpfs", "-o", "ro", "tmpfs", f"/proc/{name}")
    for name in READ_ONLY:
        if Path("/proc", name).exists():
            mount("--bind", f"/proc/{name}", f"/proc/{name}")
            mount("-o", "remount,bind,ro", f"/proc/{name}")


def become(wrong: str) -> None:
    if wrong != "root":
        os.setgroups([])
        if wrong != "capabilities":
            for capability in range(64):
                libc.prctl(DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
    if wrong != "privileges":
        libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def allow_only(names: list[str]) -> None:
    only = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.ENOSYS))
    for name in names:
        try:
            only.add_rule(pyseccomp.ALLOW, name)
        except (OSError, ValueError):
            continue
    only.set_attr(pyseccomp.Attr.CTL_NNP, 0)
    only.load()


def main() -> None:
    asked = json.loads(sys.argv[1])
    settings = SandboxSettings(sandbox_isolation=asked["isolation"])
    assert resource and self_test
    sys.executable = "/usr/bin/python3"  # of whom the tests are may be in a folder that others may not pass
    if libc.unshare(NEW_MOUNTS) != 0:
        raise OSError(ctypes.get_errno(), "no mount namespace")
    mount("--make-rprivate", "/")
    if Path(__file__).is_relative_to("/tmp"):  # where somebody cloned into it
        mount("--bind", "/tmp", "/tmp")
    else:
        mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    mask_proc()
    if asked["wrong"] != "root file system":
        mount("-o", "remount,bind,ro", "/")
    become(asked["wrong"])
    if asked["allowed"]:
        allow_only(asked["allowed"])
    try:
        sandbox = Sandbox.open(settings)
    except SandboxRefused as error:
        sys.stdout.write(f"refused: {error}")
        return
    sys.stdout.write(f"works: {sandbox.facts.says}\n")
    sys.stdout.write(sandbox.run_blocking(Job(["python3", "-I", "-S", "-c", LOOKS])).stdout.decode())


if __name__ == "__main__":
    main()
