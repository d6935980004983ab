"""The seccomp profile of a container in which sandboxes are started: `python -m workbench.sandbox.container_profile`.

It writes infra/sandbox/docker-seccomp.json: what a sandboxed process may call, and beyond it what a service and
bubblewrap do themselves. Docker's own default profile refuses bubblewrap its namespaces.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from workbench.sandbox.syscalls import ALLOWED

PLACE = Path("infra/sandbox/docker-seccomp.json")
OF_BUBBLEWRAP = ("clone", "mount", "pivot_root", "seccomp", "sethostname", "socket", "umount2", "unshare")
OF_SERVICES = """
    io_cancel io_destroy io_getevents io_setup io_submit mbind memfd_create mlockall mknod mknodat munlockall
    personality preadv2 pwritev2 semctl semget semop semtimedop set_mempolicy setns shmat shmctl shmdt shmget
"""
ENOSYS = 38


def profile() -> dict[str, Any]:
    """The profile for Docker and Kubernetes. clone3 is ENOSYS, so that C libraries take clone, whose flags can be seen;
    said twice, for an engine before Docker 23 passes the default over, answers EPERM, and no thread can be started."""
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": ENOSYS,
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
        ],
        "syscalls": [
            {"names": sorted({*ALLOWED, *OF_BUBBLEWRAP, *OF_SERVICES.split()}), "action": "SCMP_ACT_ALLOW"},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS},
        ],
    }


def text() -> str:
    return json.dumps(profile(), indent=2) + "\n"


if __name__ == "__main__":
    PLACE.write_text(text())
    sys.stdout.write(f"{PLACE}\n")
