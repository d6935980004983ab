"""The reason why bubblewrap does not work here, and what mends it. `sentence` is pure; `look` reads what it goes by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.sandbox.kinds import has_filter

APPARMOR_PROFILE = "infra/sandbox/apparmor-bwrap"
SECCOMP_PROFILE = "infra/sandbox/docker-seccomp.json"
IN_DOCKER = f"docker run --security-opt seccomp={SECCOMP_PROFILE} --security-opt systempaths=unconfined"
MORE = "docs/sandbox.md has more"
KUBELETS_HOSTS = b"# Kubernetes-managed hosts file."
IN_A_POD = (
    f"on Kubernetes {SECCOMP_PROFILE} as the pod's seccompProfile.localhostProfile, and RATCHET_SANDBOX_ISOLATION=pod"
)


@dataclass(frozen=True, slots=True)
class Machine:
    """The settings of a kernel and a container. None where the setting does not exist."""

    missing: Sequence[str] = ()
    most_user_namespaces: int | None = None
    unprivileged_user_namespaces: int | None = None
    apparmor_restricts: int | None = None
    is_container: bool = False
    has_filter: bool = False
    """A seccomp filter is in force, as in Docker's default container."""


def look(missing: Sequence[str]) -> Machine:
    return Machine(
        missing=tuple(missing),
        most_user_namespaces=_number("user/max_user_namespaces"),
        unprivileged_user_namespaces=_number("kernel/unprivileged_userns_clone"),
        apparmor_restricts=_number("kernel/apparmor_restrict_unprivileged_userns"),
        is_container=Path("/.dockerenv").exists() or Path("/run/.containerenv").exists() or _in_kubernetes(),
        has_filter=has_filter(),
    )


def sentence(machine: Machine, said: str) -> str:
    """Return what failed, and what to type. `said` is what bubblewrap or the self-test said."""
    return f"{said}. {_mended_by(machine, said)}; {MORE}"


def _mended_by(machine: Machine, said: str) -> str:
    if machine.missing:
        return f"{', '.join(machine.missing)} is not installed: sh infra/setup-debian.sh, or apt-get install bubblewrap"
    if machine.most_user_namespaces == 0:
        return "User namespaces are switched off: sudo sysctl -w user.max_user_namespaces=15000"
    if machine.unprivileged_user_namespaces == 0:
        return "User namespaces are root's alone here: sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if "/proc" in said and "mount" in said.lower():
        return f"The container masks parts of /proc: {IN_DOCKER}, or RATCHET_SANDBOX_ISOLATION=pod to do without it"
    if machine.is_container and machine.has_filter:
        return f"The container's seccomp profile refuses namespaces: {IN_DOCKER}; {IN_A_POD}"
    if machine.apparmor_restricts == 1:
        return (
            "AppArmor, as Ubuntu sets it up from 24.04 on, refuses user namespaces to bubblewrap: "
            f"sudo install -m 644 {APPARMOR_PROFILE} /etc/apparmor.d/bwrap && sudo systemctl reload apparmor"
        )
    if machine.has_filter:
        return f"A seccomp filter is in force that may refuse it; in a container: {IN_DOCKER}"
    return "No setting that is known to cause this was found"


def _number(name: str) -> int | None:
    try:
        return int(Path("/proc/sys", name).read_text())
    except (OSError, ValueError):
        return None


def _in_kubernetes() -> bool:
    """The kubelet writes that file and says so; a token there may be none."""
    try:
        return Path("/etc/hosts").read_bytes().startswith(KUBELETS_HOSTS)
    except OSError:
        return False
