"""Decides which process may write the logs of a folder: one at a time, the leader, under an epoch that grows with each
new one.

`.lock` in the folder says who leads. Its flock dies with the leader, so that a standby takes over at once; a counter in
it moves while the leader works, so that a standby takes over from one that hangs. Each new leader puts another file in
its place by rename: whoever holds an older one leads no more, and finds that out by one look (`check`).

Between that look and what follows a process may be stopped for hours. So nothing relies on it alone:
- a line counts as logged only if its writer still led *after* it was on disk, and who takes over from one that may
  still live begins a new file behind the end it found (`must_seal`): what is written to the old one later is no part of
  the log (ratchet/logs/segments.py);
- files are renamed and removed only within `changing`, under the lock that a new leader takes to put its file in place.

The counter is compared with itself, on the standby's own clock; clocks of two machines are never compared. A standby
that stood still itself does not count that time. Which file systems keep these promises: docs/operations.md.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

import msgspec

from ratchet.files.append_file import explain
from ratchet.files.atomic_file import sync_folder
from ratchet.files.folder_lock import FolderLock
from ratchet.logs.names import LEADERS_LOGS
from ratchet.logs.reader import active_tail
from ratchet.logs.rows import EpochRow
from ratchet.service.errors import LeadershipLost, StorageUnavailable
from ratchet.service.telemetry import Log

log = Log("leadership")

LEASE_S = 10.0
"""The time without a sign of life from the leader after which a standby takes over."""
RENEWALS = 10
"""Renewals in the time of a lease."""
LONGEST_LOOK_S = 1.0
"""More time than this between two looks at the leader counts as this much: the one who looks stood still itself."""
CHANGE_TIMEOUT_S = 10.0
CLAIM_TIMEOUT_S = 0.5
CHANGES = ".changes"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LEASE = re.compile(
    r"pid \d+ on \S+, epoch (?P<epoch>\d+)\nboot (?P<boot>\S*)\n(?P<state>renewed|released) +(?P<count>\d+)"
)


class Fence(Protocol):
    """The question that a writer asks before and after it writes."""

    @property
    def epoch(self) -> int | None:
        """Stands in every line."""

    @property
    def must_seal(self) -> bool:
        """The one before may still hold the log open: what it appends from now on must not be part of it."""

    @property
    def took_from_living(self) -> bool:
        """The one before held the lock to the last: it hangs, with what it had open."""

    def check(self) -> None:
        """Raises LeadershipLost, for good, once another leads; StorageUnavailable."""

    def changing(self) -> AbstractContextManager[None]:
        """While names of files are changed: no other becomes leader meanwhile. Raises as `check`."""


class Unfenced:
    """The fence of a log that one process writes and nobody takes over."""

    epoch: int | None = None
    must_seal = False
    took_from_living = False

    def check(self) -> None:
        return

    def changing(self) -> AbstractContextManager[None]:
        return nullcontext()


UNFENCED = Unfenced()


class Arbiter(Protocol):
    """Says beside the folder who may lead, as a Lease of Kubernetes does (ratchet/logs/kubernetes_lease.py)."""

    def try_acquire(self) -> bool:
        """True once this process may lead. Raises StorageUnavailable while nobody can say."""

    def renew(self) -> bool:
        """A sign of life; False where another may lead. Raises StorageUnavailable."""

    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Lease:
    """The statement of a leader about itself."""

    epoch: int
    boot: str
    """Identity of the kernel it runs on: there, and only there, a flock that is free proves its holder's end."""
    released: bool
    count: int


def this_boot() -> str:
    """Names the time since the machine was started, in which steady time goes on; empty where that is not known."""
    with suppress(OSError):
        return BOOT_ID.read_text().strip()
    return ""


def parse_lease(text: str) -> Lease | None:
    """None for what an older version wrote: such a leader has no lease, and only its end frees the folder."""
    found = LEASE.match(text)
    return found and Lease(int(found["epoch"]), found["boot"], found["state"] == "released", int(found["count"]))


def newest_epoch(folder: Path) -> int:
    """Return the epoch of the newest lines of the logs; 0 where they have none."""
    epochs = [0]
    for log in LEADERS_LOGS:
        for line in active_tail(folder, log, 1):
            with suppress(msgspec.DecodeError):
                epochs.append(msgspec.json.decode(line, type=EpochRow).epoch)
    return max(epochs)


class Leadership:
    """A candidate's, and once it leads, the leader's. `check` and `renew` may be called from any thread."""

    def __init__(
        self,
        folder: Path,
        *,
        lease_s: float = LEASE_S,
        seconds: Callable[[], float] = time.monotonic,
        boot: str | None = None,
        on_lost: Callable[[str], None] = lambda _: None,
        arbiter: Arbiter | None = None,
    ) -> None:
        """`on_lost` is told why, in whatever thread found out; a service ends its process there, before a step more.

        With an `arbiter` it is that which says when another may take over; while it can't be asked, the folder does.
        """
        self.folder = folder
        self.lock = FolderLock(folder)
        self.lease_s = lease_s
        self._seconds = seconds
        self._boot = this_boot() if boot is None else boot
        self._on_lost = on_lost
        self._arbiter = arbiter
        self._has_arbiter = True
        """True if the arbiter answered when it was asked last."""
        self._fd: int | None = None
        self._file = (0, 0)
        self._count = self._state_at = 0
        self._seen: tuple[tuple[int, int], str] | None = None
        self._looked_at = seconds()
        self._idle_s = 0.0
        self.epoch: int | None = None
        self.must_seal = False
        self.took_from_living = False

    @property
    def path(self) -> Path:
        return self.lock.path

    def holder(self) -> str:
        """Return the process that leads, or led last, for a message to a person."""
        return self.lock.holder()

    def try_lead(self) -> bool:
        """True once this process leads; call it again and again until then. Never waits longer than a claim takes.

        Raises StorageUnavailable while the folder can't be written.
        """
        if self._fd is not None:
            return True
        allowed = self._ask_arbiter(lambda one: one.try_acquire())
        if allowed is False:
            return False
        try:
            free = self.lock.try_acquire(sign=False)
            try:
                known = self._look()
                return (free or allowed or self._has_expired(known)) and self._claim(known, free)
            finally:
                self.lock.release()
        except OSError as error:
            raise explain(error, self.path) from error

    def check(self) -> None:
        """Check, as a Fence."""
        if self._fd is None and self.epoch is not None:  # a thread that ends later than the event loop did
            raise LeadershipLost(f"{self.folder} was given up in order: this process writes nothing more")
        if self._fd is None or self._file_there() != self._file:
            self._lose()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lead within the block, as a Fence. It must be short: a process that is stopped in it can't be
        followed by another."""
        self.check()
        with self._changes(CHANGE_TIMEOUT_S):
            self.check()
            yield

    def renew(self) -> None:
        """A sign of life, on disk when this returns. Raises as `check`."""
        self.check()
        if (
            self._ask_arbiter(lambda one: one.renew()) is False
        ):  # by a file alone, or another wrote it: the folder says who leads
            self._ask_arbiter(lambda one: one.try_acquire())
        self._count += 1
        self._say("renewed")

    def release(self) -> None:
        """Leads no more: who comes next need not fear it. Harmless where it does not lead."""
        if self._fd is None:
            return
        with suppress(StorageUnavailable):
            self._say("released")
        if self._arbiter is not None:
            self._arbiter.release()
        fd, self._fd = self._fd, None
        os.close(fd)

    def _ask_arbiter(self, question: Callable[[Arbiter], bool]) -> bool | None:
        """Return the answer; None where there is no arbiter, or it can't be asked now."""
        if self._arbiter is None:
            return None
        try:
            answer = question(self._arbiter)
        except StorageUnavailable as error:
            if self._has_arbiter:
                log.warning("no-arbiter", f"the folder says who leads, for now: {error}")
            self._has_arbiter = False
            return None
        self._has_arbiter = True
        return answer

    # --- becoming the leader ---------------------------------------------------------------------------------------

    def _look(self) -> tuple[tuple[int, int], str]:
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            return (status.st_ino, status.st_dev), file.read(4096).decode("utf-8", "replace")

    def _has_expired(self, known: tuple[tuple[int, int], str]) -> bool:
        now = self._seconds()
        passed, self._looked_at = now - self._looked_at, now
        if known != self._seen or parse_lease(known[1]) is None:
            self._seen, self._idle_s = known, 0.0
            return False
        self._idle_s += min(passed, LONGEST_LOOK_S)
        return self._idle_s >= self.lease_s

    def _claim(self, known: tuple[tuple[int, int], str], free: bool) -> bool:
        """Claim the lead by a file that takes the place of the one that was looked at; False where another's did."""
        file, text = known
        before, newest = parse_lease(text), newest_epoch(self.folder)
        epoch = max(before.epoch if before else 0, newest) + 1
        mine = self.path.with_name(f"{self.path.name}.{socket.gethostname()}.{os.getpid()}")
        mine.unlink(missing_ok=True)
        fd = os.open(mine, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            head = f"pid {os.getpid()} on {socket.gethostname()}, epoch {epoch}\nboot {self._boot}\n"
            os.write(fd, f"{head}renewed  {0:015d}\n".encode())
            os.fsync(fd)
            with self._changes(CLAIM_TIMEOUT_S):
                if self._file_there() != file:
                    raise _AnotherWasFaster
                mine.rename(self.path)
            sync_folder(self.folder)
        except BaseException as error:
            os.close(fd)
            mine.unlink(missing_ok=True)
            if isinstance(error, _AnotherWasFaster):
                return False
            raise
        status = os.fstat(fd)
        self._state_at, self._count = len(head), 0
        self._fd, self._file, self.epoch = fd, (status.st_ino, status.st_dev), epoch
        self.took_from_living = not free
        proved = free and before is not None and (before.released or before.boot == self._boot)
        self.must_seal = epoch > 1 and (not proved or (before is not None and before.epoch < newest))
        return True

    # --- the files -------------------------------------------------------------------------------------------------

    def _say(self, state: str) -> None:
        fd = self._fd
        if fd is None:
            return
        try:
            os.pwrite(fd, f"{state:<8} {self._count:015d}\n".encode(), self._state_at)
            os.fdatasync(fd)
        except OSError as error:
            raise explain(error, self.path) from error

    def _file_there(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain(error, self.path) from error
        return status.st_ino, status.st_dev

    @contextmanager
    def _changes(self, timeout_s: float) -> Iterator[None]:
        lock = FolderLock(self.folder, CHANGES)
        try:
            acquired = lock.acquire(timeout_s)
        except OSError as error:
            raise explain(error, lock.path) from error
        if not acquired:
            raise StorageUnavailable(
                f"{lock.path} is held by {lock.holder()}, longer than a change takes: if that process was stopped "
                f"within one, let it go on, or end it"
            )
        try:
            yield
        finally:
            lock.release()

    def _lose(self) -> NoReturn:
        sentence = (
            f"{self.folder} is led by {self.holder()} now: this process, of epoch {self.epoch}, gave no sign of life "
            f"for {self.lease_s:g} s, or its {self.path.name} was removed. It writes nothing more"
        )
        self._on_lost(sentence)
        raise LeadershipLost(sentence)


class _AnotherWasFaster(Exception):
    """Another candidate's file stands where the one that was looked at stood."""
