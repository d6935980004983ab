"""The surroundings of bubblewrap: nothing in particular, a container that holds nothing, or one with its own kernel.

`look` reads what this process is in, `faults` says what is missing, and is pure. What only the machine outside knows,
such as whether a network policy holds or how many processes the container may have, can't be seen from here.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

GVISOR_SAYS = b"Starting gVisor"
"""The first line of its kernel log, by which its documentation tells it."""
KERNEL_LOG_BYTES = 65_536
READ_KERNEL_LOG = 3
GET_SECCOMP, READ_BOUNDING_SET, GET_NO_NEW_PRIVILEGES = 21, 23, 39
FILTERED = 2
LAST_CAPABILITY = 40
TOKENS = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class Isolation(StrEnum):
    BWRAP = "bwrap"
    """Bubblewrap alone."""
    POD = "pod"
    """Bubblewrap in a container that is closed itself."""
    GVISOR = "gvisor"
    """The same, on gVisor's kernel."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The confinement of this process. `has_filter`: of system calls, by the kernel it sees."""

    user: int
    capabilities: frozenset[int]
    no_new_privileges: bool
    has_filter: bool
    root_is_read_only: bool
    has_cluster_token: bool
    is_gvisor: bool


def faults(isolation: Isolation, found: Surroundings) -> list[str]:
    """Return what is missing, each with what mends it; none where bubblewrap is to stand alone."""
    return list(_faults(isolation, found))


def _faults(isolation: Isolation, found: Surroundings) -> Iterator[str]:
    if isolation is Isolation.BWRAP:
        return
    if found.user == 0:
        yield "the service runs as root: give its container a user (runAsUser, --user)"
    if found.capabilities:
        yield "the container keeps capabilities: drop all of them (capabilities.drop: [ALL], --cap-drop ALL)"
    if not found.no_new_privileges:
        yield "the container may gain privileges: allowPrivilegeEscalation: false, --security-opt no-new-privileges"
    if not found.root_is_read_only:
        yield "the container's root can be written to: readOnlyRootFilesystem: true, --read-only"
    if found.has_cluster_token:
        yield "the pod has a token for the Kubernetes API: automountServiceAccountToken: false"
    if isolation is Isolation.GVISOR:
        if not found.is_gvisor:
            yield "the kernel is not gVisor's: runtimeClassName: gvisor, --runtime runsc"
    elif not found.has_filter:
        yield "no filter of system calls is in force: seccompProfile, infra/sandbox/docker-seccomp.json"


def look() -> Surroundings:
    libc = ctypes.CDLL(None, use_errno=True)
    return Surroundings(
        user=os.geteuid(),
        capabilities=frozenset(one for one in range(LAST_CAPABILITY + 1) if libc.prctl(READ_BOUNDING_SET, one) == 1),
        no_new_privileges=libc.prctl(GET_NO_NEW_PRIVILEGES, 0, 0, 0, 0) == 1,
        has_filter=has_filter(),
        root_is_read_only=bool(os.statvfs("/").f_flag & os.ST_RDONLY),
        has_cluster_token=TOKENS.exists(),
        is_gvisor=_is_gvisor(libc),
    )


def has_filter() -> bool:
    """Ask the kernel whether a seccomp filter is in force, as in Docker's default container: /proc may be masked."""
    return bool(ctypes.CDLL(None).prctl(GET_SECCOMP, 0, 0, 0, 0) == FILTERED)


def _is_gvisor(libc: ctypes.CDLL) -> bool:
    log = ctypes.create_string_buffer(KERNEL_LOG_BYTES)
    return bool(libc.klogctl(READ_KERNEL_LOG, log, KERNEL_LOG_BYTES) > 0 and GVISOR_SAYS in log.raw)
