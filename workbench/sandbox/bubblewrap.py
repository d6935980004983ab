"""The command line that starts a job in bubblewrap. Pure, but for looking at what the machine's root looks like, or
that of the job, and for naming this process.

setpriv    an own user id, where we are root; nothing of our privileges
choom      the first to go where memory runs out
prlimit    no core file; the largest file, CPU seconds, memory, open files of each process; processes, where we are root
bwrap      its own users, processes, network, mounts, IPC, host name and cgroups; no capabilities; system calls filtered
sh         says that all is set up, waits for the word, sets the job's variables
the job's command

The shell may come from an image, so no limit is left to it, but for fewer open files than the job has files. Where we
are not root, running.py limits the processes before bwrap starts the first.
"""

from __future__ import annotations

import math
import os
import re
import resource
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from workbench.sandbox import half_started, listener
from workbench.sandbox.job import WORKSPACE, Job, SandboxError
from workbench.sandbox.limits import Limits

PROGRAMS = ("bwrap", "setpriv", "choom", "prlimit")
"""bubblewrap, and of util-linux what every Debian has."""

OWN_USERS = range(1_900_000_000, 2_100_000_000)
"""User ids that neither people nor containers are given; one is drawn for each run that root starts."""

INSIDE = 1000
WRITABLE = (WORKSPACE, "/tmp", "/dev/shm")
PASSWD = b"root:x:0:0::/:/bin/false\nsandbox:x:1000:1000::/workspace:/bin/sh\n"
GROUP = b"root:x:0:\nsandbox:x:1000:\n"
FROM_ETC = ("alternatives", "ld.so.cache")
HOST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Folders in which bubblewrap and util-linux are looked for, whatever the service's own path says."""
PATH = "/usr/local/bin:/usr/bin:/bin"
OF_ROOT = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")

MOST_SIGNALS = 4096
"""Waiting ones, each timer's among them: the user's neighbours and the service itself share what there is of them."""

OWN_PROC = ("--proc", "/proc", "--remount-ro", "/proc")
"""Read-only: nobody rewrites the memory of the first process, which is of the job's own user and ends the run with
whoever waits for it; nobody makes itself the last to go where memory runs out, or watches the machine's pressure."""

OURS = frozenset(("dev", "proc", "run", "sys", "task", "tmp", "workspace"))
"""Folders at the top of a sandbox that never come from a root of its own."""
MOST_AT_TOP = 100
"""The most folders at the top: each is an argument of bubblewrap."""

FILES_OF_BWRAP = 32
"""The most files that bubblewrap has open beside those that it is given for the job."""

HANDSHAKE = (
    'ulimit -n "$1" || exit 125\n'
    "echo || exit 125\n"
    "read -r word || exit 125\n"
    "shift\n"
    'while [ "$1" != -- ]; do command export "$1"; shift; done 2>/dev/null\n'
    'shift\nexec "$@"\n'
)
"""The handshake over stdout and stdin, before the job has them: a shell reads no further than the line's end.

Variables such as LD_PRELOAD would have the job's code run in the shell, so it sets them after that; by `command`, for
else it would end where it can't set one."""

OF_SHELLS = frozenset(("UID", "EUID", "PPID"))
"""Variables that bash lets nobody set, but passes on as they came."""


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Descriptors that bubblewrap reads or writes. `job` are the job's files, by path in the workspace; `data` others
    that it sees, by their path inside. `channel`: a Unix socket that takes the sockets that listen inside, if any.
    `start`: nothing is started inside before this has something to read."""

    status: int
    start: int
    passwd: int
    group: int
    filters: Sequence[int]
    job: Mapping[str, int]
    data: Mapping[str, int]
    channel: int | None = None


def listens_from_inside(job: Job) -> bool:
    """Tell whether the listener runs inside, by the machine's Python. A root of its own need not have one."""
    return bool(job.listeners) and job.root is None


@cache
def listener_in(python: str) -> tuple[str, ...]:
    """The command that runs listener.py, which is none of the files that are seen inside."""
    return (python, "-I", "-S", "-c", Path(listener.__file__).read_text())


def command_line(job: Job, opened: OpenFiles, *, as_root: bool, memory_is_held: bool, own_proc: bool) -> list[str]:
    """`memory_is_held`: a cgroup holds the whole run to its memory, so that no single process needs to be.

    `own_proc`: without it /proc is an empty folder, and what keeps further namespaces away is the filter alone. So it
    is in a container that masks parts of its /proc, where the kernel lets nobody mount another one.
    """
    return [
        *(_own_user() if as_root else ()),
        *("choom", "-n", "1000", "--"),
        *_process_limits(job, as_root=as_root, memory_is_held=memory_is_held),
        *("bwrap", *_namespaces(opened), *(("--disable-userns",) if own_proc else ())),
        *(*_root(job, opened), *(OWN_PROC if own_proc else ("--dir", "/proc")), *_workspace(job, opened)),
        *_environment(job),
        *("--remount-ro", "/", "--"),
        *_listening(job, opened),
        *("/bin/sh", "-c", HANDSHAKE, half_started.owner(), str(job.limits.open_files)),
        *(f"{name}={value}" for name, value in job.environment.items() if not _passes_through(name)),
        *("--", *job.command),
    ]


def _listening(job: Job, opened: OpenFiles) -> Iterator[str]:
    """Raises SandboxError where there is no Python below /usr to make sockets with."""
    if listens_from_inside(job):
        python = shutil.which("python3", path=PATH)
        if python is None:
            raise SandboxError(f"no python3 in {PATH}: a sandbox with a way out needs one")
        yield from (*listener_in(python), str(opened.channel), *map(str, job.listeners), "--")


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name, path=HOST_PATH) is None]


def _own_user() -> Iterator[str]:
    user = str(secrets.choice(OWN_USERS))
    yield from ("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs")
    yield from ("--inh-caps=-all", "--bounding-set=-all", "--")


def _process_limits(job: Job, *, as_root: bool, memory_is_held: bool) -> Iterator[str]:
    limits = job.limits
    yield from ("prlimit", "--core=0:0", f"--fsize={limits.file_bytes}")
    yield f"--cpu={math.ceil(limits.cpu_s)}:{math.ceil(limits.cpu_s) + 1}"
    yield from ("--memlock=0:0", "--msgqueue=0:0", f"--sigpending={_at_most(resource.RLIMIT_SIGPENDING, MOST_SIGNALS)}")
    given = len(job.files) + len(job.data) + len(job.descriptors)
    yield f"--nofile={_at_most(resource.RLIMIT_NOFILE, max(limits.open_files, given + FILES_OF_BWRAP))}"
    if as_root:  # the run's user has no other processes, but for one of bubblewrap's outside
        yield f"--nproc={most_processes(limits, outside=1)}"
    if not memory_is_held:
        yield f"--data={limits.memory_bytes}"
    yield "--"


def most_processes(limits: Limits, outside: int = 0) -> int:
    """Return the limit on a run's processes: there are at least the first one inside and the command."""
    return _at_most(resource.RLIMIT_NPROC, max(limits.processes, 2) + outside)


def _at_most(kind: int, wanted: int) -> int:
    """Return `wanted`, or what this process may have if that is less: nobody without capabilities could raise it."""
    _, own = resource.getrlimit(kind)
    return wanted if own == resource.RLIM_INFINITY else min(wanted, own)


def _namespaces(opened: OpenFiles) -> Iterator[str]:
    yield from ("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session")
    yield from ("--cap-drop", "ALL", "--clearenv", "--hostname", "sandbox")
    yield from ("--uid", str(INSIDE), "--gid", str(INSIDE))
    yield from ("--json-status-fd", str(opened.status), "--block-fd", str(opened.start))
    for program in opened.filters:
        yield from ("--add-seccomp-fd", str(program))


def _root(job: Job, opened: OpenFiles) -> Iterator[str]:
    if job.root is None:
        yield from _of_machine(opened)
    else:
        _require_no_links(job.root, (*job.mounts, *job.data, *job.sockets, *job.links))
        yield from _of_image(job.root, opened)
    yield from ("--dev", "/dev")


def _of_machine(opened: OpenFiles) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in OF_ROOT:
        place = Path("/", name)
        if place.is_symlink():
            yield from ("--symlink", str(place.readlink()), str(place))
        elif place.is_dir():
            yield from ("--ro-bind", str(place), str(place))
    for name in FROM_ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    yield from ("--perms", "0444", "--ro-bind-data", str(opened.passwd), "/etc/passwd")
    yield from ("--perms", "0444", "--ro-bind-data", str(opened.group), "/etc/group")


def _of_image(root: Path, opened: OpenFiles) -> Iterator[str]:
    """Bind each entry at the top of the image by itself, so that there is room beside it for what a job is given.

    Links are made as links, which lead nowhere else than inside. Raises SandboxError.
    """
    try:
        with os.scandir(root) as entries:
            found = sorted((one for one in entries if one.name not in OURS), key=lambda one: one.name)
    except OSError as error:
        raise SandboxError(f"the root {root} can't be looked into: {error.strerror}") from error
    if len(found) > MOST_AT_TOP:
        raise SandboxError(f"there are more than {MOST_AT_TOP} files and folders at the top of {root}")
    for one in found:
        if one.is_symlink():
            yield from ("--symlink", str(Path(one.path).readlink()), f"/{one.name}")
        elif one.is_dir() or one.is_file():
            yield from ("--ro-bind", one.path, f"/{one.name}")
    etc = root / "etc"
    for name, descriptor in (("passwd", opened.passwd), ("group", opened.group)):
        if not os.path.lexists(etc) or (_is_own(etc, Path.is_dir) and _is_own(etc / name, Path.is_file)):
            yield from ("--perms", "0444", "--ro-bind-data", str(descriptor), f"/etc/{name}")


def _is_own(place: Path, kind: Callable[[Path], bool]) -> bool:
    return kind(place) and not place.is_symlink()


def _require_no_links(root: Path, places: Sequence[str]) -> None:
    """Bubblewrap would follow them while it still sees the machine. Raises SandboxError."""
    for path in places:
        _, *parts = PurePosixPath(path).parts
        at = root
        for part in parts if parts[0] not in OURS else ():
            at /= part
            if at.is_symlink():
                raise SandboxError(f"{path} can't be given to the job: {at} is a link")


def _workspace(job: Job, opened: OpenFiles) -> Iterator[str]:
    for place in WRITABLE:
        yield from ("--size", str(job.limits.workspace_bytes), "--tmpfs", place)
    yield from ("--remount-ro", "/dev")
    for inside, folder in job.mounts.items():
        yield from ("--ro-bind", str(folder), inside)
    for inside, socket in job.sockets.items():
        yield from ("--bind", str(socket), inside)
    for inside, descriptor in opened.data.items():
        yield from ("--perms", "0444", "--ro-bind-data", str(descriptor), inside)
    for inside, target in job.links.items():
        yield from ("--symlink", target, inside)
    for path, descriptor in opened.job.items():
        yield from ("--perms", "0755" if path in job.executable else "0644")
        yield from ("--file", str(descriptor), f"{WORKSPACE}/{path}")
    yield from ("--chdir", job.directory)


def _environment(job: Job) -> Iterator[str]:
    given = {"PATH": PATH, "HOME": WORKSPACE, "TMPDIR": "/tmp", "LANG": "C.UTF-8", "USER": "sandbox"}
    given |= {name: value for name, value in job.environment.items() if _passes_through(name)}
    for name, value in given.items():
        yield from ("--setenv", name, value)


def _passes_through(name: str) -> bool:
    """Tell whether a shell can't set the variable, nor runs otherwise because of it."""
    return name in OF_SHELLS or not (re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) or name.startswith("BASH_FUNC_"))
