"""A job for a sandbox, and its result."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePosixPath

from workbench.errors import WorkbenchError
from workbench.sandbox.limits import Limits

WORKSPACE = "/workspace"
MAX_FILES = 256
DEFAULT_LIMITS = Limits()

Listen = Callable[[socket.socket], None]
"""Takes a socket that listens, which is theirs from then on. Called in any thread."""


class SandboxError(WorkbenchError):
    """The sandbox itself failed or can't be used here: never the fault of what was to run in it."""


class SandboxRefused(SandboxError):
    """This machine can't hold what would run: the sentence names the setting or profile that mends it."""


class End(Enum):
    """The ways in which a run ends."""

    EXITED = "exited"
    """It ended by itself; `exit_code` says how."""
    SIGNALLED = "signalled"
    """It was ended by a signal that nobody here sent, such as SIGSEGV."""
    WALL_TIME = "wall_time"
    CPU_TIME = "cpu_time"
    MEMORY = "memory"
    OUTPUT = "output"
    """It wrote more than is read."""
    FILES = "files"
    """It made more files than it may."""
    CANCELLED = "cancelled"
    """It was called off by its caller."""


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A file of a tree; of a link, its target is the content."""

    content: bytes | memoryview
    executable: bool = False
    is_link: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A command and all that it sees of the world.

    `files` are put into the workspace, by path in it, and `collect` are the paths that come out afterwards.
    `executable` names those of `files` that may be executed. `mounts` are folders of the host seen read-only, by their
    path inside, and `data` files of their own there, by theirs. `tree` is put into the workspace beside `files`, which
    come first where both have a path; links in it are links inside, and `collect_tree` has all of the workspace come
    out as it was left. `sockets` are Unix sockets of the host that can be connected to, by their path inside: one way
    out. The other is `listeners`, by their port of 127.0.0.1 inside: who is to answer there is given the socket that
    listens, before the command begins and in the thread of the run. `descriptors` are open ones that stay open, under
    the same numbers. `root` is a folder whose content the job sees in place of the machine's /usr; it needs a /bin/sh.
    `links` are symbolic links: by their path inside, where they lead.
    It begins in the `directory`.
    """

    command: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    executable: frozenset[str] = frozenset()
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    collect: Sequence[str] = ()
    tree: Mapping[str, TreeFile] = field(default_factory=dict)
    collect_tree: bool = False
    mounts: Mapping[str, Path] = field(default_factory=dict)
    data: Mapping[str, bytes] = field(default_factory=dict)
    sockets: Mapping[str, Path] = field(default_factory=dict)
    listeners: Mapping[int, Listen] = field(default_factory=dict)
    descriptors: Sequence[int] = ()
    root: Path | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    directory: str = WORKSPACE
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        if not self.command:
            raise SandboxError("a job needs a command")
        if len(self.files) > MAX_FILES:
            raise SandboxError(f"a job has {len(self.files)} files, more than {MAX_FILES}: mount a folder")
        for path in (*self.files, *self.collect):
            require_inside(path)
        for path in (*self.mounts, *self.data, *self.sockets, *self.links):
            require_mountable(path)
        require_absolute(self.directory)
        for path in self.tree:
            if "\0" in path or not _NO_STEPS.isdisjoint(path.split("/")):
                raise SandboxError(f"{path!r} is no path of a file in the workspace")
        if len(self.tree) > self.limits.files:
            raise SandboxError(f"the tree has {len(self.tree):,} files, and there may be {self.limits.files:,}")
        size = sum(map(len, self.files.values())) + sum(len(file.content) for file in self.tree.values())
        if (more := size - self.limits.workspace_bytes) > 0:
            raise SandboxError(f"the files are {more:,} bytes more than the workspace has room for")


_NO_STEPS = frozenset(("", ".", ".."))
"""Names that no path of a tree has between two slashes."""


def require_inside(path: str) -> None:
    """Raises SandboxError for what is no plain relative path; symbolic links are looked at when it is opened."""
    parts = PurePosixPath(path).parts
    if not parts or "\0" in path or path.startswith("/") or ".." in parts or path.endswith("/"):
        raise SandboxError(f"{path!r} is no path of a file in the workspace")


RESERVED = ("/usr", "/proc", "/dev", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


def require_absolute(path: str) -> None:
    """Raises SandboxError for what is no absolute path without a step back."""
    if not path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path:
        raise SandboxError(f"{path!r} is no place in the sandbox: write an absolute path")


def require_mountable(path: str) -> None:
    """Raises SandboxError for a place inside where nothing can be put: what the sandbox itself is made of."""
    require_absolute(path)
    if len(PurePosixPath(path).parts) < 2:
        raise SandboxError(f"{path!r} is no place in the sandbox: it is all of it")
    if any(PurePosixPath(path).is_relative_to(taken) for taken in RESERVED):
        raise SandboxError(f"{path!r} can't be given to a job: {', '.join(RESERVED)} are the sandbox's own")


@dataclass(frozen=True, slots=True)
class Result:
    """`exit_code` is None unless it exited. `files` holds what was collected, `tree` the whole workspace where that was
    asked for; `left_out` says why a file is in neither."""

    end: End
    says: str
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    tree: Mapping[str, TreeFile] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    start_s: float = 0.0
    """The time until the command could begin."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    """Most memory seen at once; 0 where it was over before anybody looked."""

    @property
    def succeeded(self) -> bool:
        return self.end is End.EXITED and self.exit_code == 0
