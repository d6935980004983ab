"""One run, from the first process to the end of the last. Blocking: `Sandbox` gives each a thread.

A run ends where its command does, at a limit, or when whoever started it wants it no more. In each case the first
process of its namespace is waited for: by then the kernel has ended and reaped every other one, whatever they did to
stay, and only then are files looked at. The thread that starts bubblewrap is the one it dies with, so it stays to the
end.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from workbench import trees
from workbench.sandbox import bubblewrap
from workbench.sandbox.cgroup import Cgroups, RunGroup
from workbench.sandbox.job import End, Job, Result, SandboxError
from workbench.sandbox.listeners import Channel
from workbench.sandbox.process_tree import CpuTime, held_by_sockets, usage

START_WITHIN_S = 30.0
DEAD_WITHIN_S = 10.0
SAMPLE_S = 0.05
READ_BYTES = 65_536
GO = b"go\n"
COULD_NOT_EXEC = (126, 127)


def ready(reading: Iterable[int], writing: Iterable[int] = (), within_s: float = 0.0) -> set[int]:
    """The descriptors that can be read or written, or have ended. Any number of any size, unlike select."""
    poll = select.poll()
    for descriptor in reading:
        poll.register(descriptor, select.POLLIN)
    for descriptor in writing:
        poll.register(descriptor, select.POLLOUT)
    return {descriptor for descriptor, _ in poll.poll(max(0.0, within_s) * 1000)}


class Stop:
    """Ends a run from another thread; any number of times, also before it began."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def set(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._write, b"x")

    def is_set(self) -> bool:
        return bool(ready([self._read]))

    def fileno(self) -> int:
        return self._read

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


def run(job: Job, filters: Sequence[bytes], cgroups: Cgroups | None, stop: Stop, *, own_proc: bool = True) -> Result:
    """Raises SandboxError where the sandbox failed, in which case nothing of it runs any more either."""
    try:
        return _run(job, filters, cgroups, stop, own_proc)
    except OSError as error:
        raise SandboxError(f"a run failed for want of something of this machine: {error}") from error


def _run(job: Job, filters: Sequence[bytes], cgroups: Cgroups | None, stop: Stop, own_proc: bool) -> Result:
    with ExitStack() as stack:
        group = stack.enter_context(_group(cgroups, job)) if cgroups else None
        channel = stack.enter_context(Channel(job)) if job.listeners else None
        started = stack.enter_context(_start(job, filters, group, own_proc, channel))
        if not started.wait_until_ready(stop):
            return Result(End.CANCELLED, "it was called off before it began")
        folders = _writable(started.first, stack)
        if channel is not None:
            channel.fetch(started.first)
        if job.tree:
            trees.put(folders[0], job.tree, job.files)
        started.release()
        ended = started.judge_end(started.watch(stop, folders))
        if job.collect:
            collected = trees.collect(folders[0], job.collect, job.limits.collected_bytes)
            ended = replace(ended, files=collected.files, left_out=collected.left_out)
        if job.collect_tree:
            left = trees.take(folders[0], job.limits.collected_bytes, job.limits.files)
            ended = replace(ended, tree=left.files, left_out={**ended.left_out, **left.left_out})
        return ended


@contextmanager
def _group(cgroups: Cgroups, job: Job) -> Iterator[RunGroup]:
    try:
        group = cgroups.group(job.limits)
    except OSError as error:
        raise SandboxError(f"no cgroup can be made any more in {cgroups.folders[0]}: {error}") from error
    try:
        yield group
    finally:
        try:
            group.remove()
        except OSError as error:
            raise SandboxError(f"the cgroup of a run does not become empty: {error}") from error


def _writable(first: int, stack: ExitStack) -> list[int]:
    """The folders that can be written to, the workspace first.

    Opened before the command begins, so that they are those that were set up; they are there until they are closed.
    """
    opened = []
    for folder in bubblewrap.WRITABLE:
        try:
            opened.append(os.open(f"/proc/{first}/root{folder}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            raise SandboxError(f"{folder} of the sandbox can't be looked into from outside: {error}") from error
        stack.callback(os.close, opened[-1])
    return opened


@contextmanager
def _start(
    job: Job, filters: Sequence[bytes], group: RunGroup | None, own_proc: bool, channel: Channel | None
) -> Iterator[_Run]:
    """Gone, with all that belongs to it, when this is left."""
    with ExitStack() as files:
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        files.callback(os.close, status_read)
        start_read, start_write = os.pipe2(os.O_CLOEXEC)
        files.callback(os.close, start_write)
        with ExitStack() as given:
            given.callback(os.close, status_write)
            given.callback(os.close, start_read)
            opened = bubblewrap.OpenFiles(
                status=status_write,
                start=start_read,
                passwd=_memory_file(given, bubblewrap.PASSWD),
                group=_memory_file(given, bubblewrap.GROUP),
                filters=[_memory_file(given, program) for program in filters],
                job={path: _memory_file(given, content) for path, content in job.files.items()},
                data={path: _memory_file(given, content) for path, content in job.data.items()},
                channel=channel.far_end if channel and bubblewrap.listens_from_inside(job) else None,
            )
            command = bubblewrap.command_line(
                job, opened, as_root=os.geteuid() == 0, memory_is_held=group is not None, own_proc=own_proc
            )
            passed = (  # bubblewrap closes what it is told of; nobody would close the rest
                opened.status,
                opened.start,
                opened.passwd,
                opened.group,
                *opened.filters,
                *opened.job.values(),
                *opened.data.values(),
                *([opened.channel] if opened.channel is not None else []),
            )
            named = set(command)
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    env={"PATH": bubblewrap.HOST_PATH},
                    cwd="/",
                    pass_fds=(*(one for one in passed if str(one) in named), *job.descriptors),
                    start_new_session=True,
                )
            except OSError as error:
                raise SandboxError(f"the sandbox can't be started: {error}") from error
        run = _Run(job, process, status_read, start_write, group)
        try:
            yield run
        finally:
            run.close()


def _memory_file(stack: ExitStack, content: bytes) -> int:
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class _Run:
    """`first` is the first process of the sandbox's process namespace: when it is gone, all are."""

    def __init__(
        self, job: Job, process: subprocess.Popen[bytes], status: int, start: int, group: RunGroup | None
    ) -> None:
        self._job, self._process, self._status, self._start, self._group = job, process, status, start, group
        assert process.stdin and process.stdout and process.stderr
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        for stream in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(stream.fileno(), False)
        self._started_at = time.monotonic()
        self._released_at = self._started_at
        self._first: int | None = None
        self._pidfd: int | None = None
        self._out, self._err, self._said = bytearray(), bytearray(), bytearray()
        self._to_write = memoryview(b"")
        self._cpu_s = 0.0
        self._measured = CpuTime()
        self._peak = 0
        self._open = {self._stdout.fileno(): self._out, self._stderr.fileno(): self._err}
        self._wall_s = 0.0

    @property
    def first(self) -> int:
        assert self._first is not None
        return self._first

    def wait_until_ready(self, stop: Stop) -> bool:
        """Wait until the command can begin; False: stop it. Raises SandboxError with bubblewrap's message."""
        until = self._started_at + START_WITHIN_S
        while not self._out:
            waiting = [*self._open, stop.fileno(), *([self._status] if self._first is None else [])]
            found = ready(waiting, within_s=until - time.monotonic())
            if not found:
                raise SandboxError(f"the sandbox was not set up within {START_WITHIN_S:g} s")
            if stop.fileno() in found:
                return False
            if self._status in found:
                self._read_status()
            for descriptor in self._open.keys() & found:
                self._read(descriptor)
            if self._stdout.fileno() not in self._open and not self._out:
                raise SandboxError(self._start_fault())
        del self._out[:1]
        return True

    def _read_status(self) -> None:
        part = os.read(self._status, READ_BYTES)
        if not part:
            raise SandboxError(self._start_fault())
        self._said += part
        line, ended, _ = self._said.partition(b"\n")
        if not ended:
            return
        self._first = int(json.loads(line)["child-pid"])
        try:
            self._pidfd = os.pidfd_open(self._first)
            self._join_group(self._first)
            self._limit_processes(self._first)
            os.write(self._start, b"\n")
        except (ProcessLookupError, BrokenPipeError):  # it could not be set up, and is gone already
            raise SandboxError(self._start_fault()) from None

    def _join_group(self, first: int) -> None:
        """Put it into the group before it has started any other process, so that all others begin there."""
        try:
            if self._group is not None:
                self._group.add(first)
        except ProcessLookupError:
            raise
        except OSError as error:
            raise SandboxError(f"a process can't be put into its cgroup: {error}") from error

    def _limit_processes(self, first: int) -> None:
        """Limit them where the kernel counts those of the sandbox's user namespace; outside it counts all of our user.

        A run that root starts has a user of its own, and its limit from the command line.
        """
        if os.geteuid() != 0:
            most = bubblewrap.most_processes(self._job.limits)
            resource.prlimit(first, resource.RLIMIT_NPROC, (most, most))

    def _start_fault(self) -> str:
        with suppress(OSError):
            while (stderr := self._stderr.fileno()) in self._open and ready([stderr], within_s=1.0):
                self._read(stderr)
        said = self._err.decode(errors="replace").strip() or "it ended without a word"
        return f"the sandbox can't be set up: {said}"

    def release(self) -> None:
        self._to_write = memoryview(GO + self._job.stdin)
        self._released_at = time.monotonic()

    def watch(self, stop: Stop, folders: Sequence[int]) -> End:
        """Watch the run until nothing of it is left. `folders`: descriptors of what it may write to."""
        assert self._pidfd is not None
        end: End | None = None
        limits = self._job.limits
        until = self._released_at + limits.wall_s
        next_sample = self._released_at + SAMPLE_S
        while end is None:
            pause = min(until, next_sample) - time.monotonic()
            writing = [] if self._stdin.closed else [self._stdin.fileno()]
            found = ready([*self._open, self._pidfd, stop.fileno()], writing, pause)
            if found.intersection(writing):
                self._write()
            for descriptor in self._open.keys() & found:
                self._read(descriptor)
            if self._wrote > limits.output_bytes:
                end = End.OUTPUT
            elif stop.fileno() in found:
                end = End.CANCELLED
            elif self._pidfd in found:
                end = End.EXITED
            elif (now := time.monotonic()) >= until:
                end = End.WALL_TIME
            elif now >= next_sample:
                end = self._measure(folders)
                next_sample = now + SAMPLE_S
        self._wall_s = time.monotonic() - self._released_at
        if end is not End.EXITED:
            self._measure(folders)
            self.kill()
        self._await_death()
        self._drain()
        return end

    def _measure(self, folders: Sequence[int]) -> End | None:
        try:
            used = usage(self.first)
        except ValueError:  # a process that can't be measured is over its limit
            return End.MEMORY
        self._measured.add_reading(used.cpu_s)
        self._cpu_s = max(self._cpu_s, self._measured.seconds, self._group.cpu_s() if self._group else 0.0)
        self._peak = max(self._peak, used.bytes)
        if self._cpu_s > self._job.limits.cpu_s:
            return End.CPU_TIME
        if self._group is None and max(used.bytes, held_by_sockets(self.first)) > self._job.limits.memory_bytes:
            return End.MEMORY
        if self._group is not None and self._group.ran_out_of_memory():
            return End.MEMORY
        if any(_files_in(folder) > self._job.limits.files for folder in folders):
            return End.FILES
        return None

    def _write(self) -> None:
        try:
            self._to_write = self._to_write[os.write(self._stdin.fileno(), self._to_write[:READ_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._to_write = memoryview(b"")
        if not self._to_write:
            self._stdin.close()

    def _read(self, descriptor: int) -> None:
        try:
            part = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        self._open[descriptor] += part
        if not part:
            del self._open[descriptor]

    def _drain(self) -> None:
        """Read what is in the pipes when everybody is gone, up to the limit."""
        while self._wrote <= self._job.limits.output_bytes and (found := ready(self._open)):
            for descriptor in found:
                self._read(descriptor)

    @property
    def _wrote(self) -> int:
        return len(self._out) + len(self._err)

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _await_death(self) -> None:
        if not self._is_dead():
            raise SandboxError(f"a run can't be ended: process {self._first} is still there {DEAD_WITHIN_S:g} s later")
        self._reap()

    def _is_dead(self) -> bool:
        """Tell whether the run dies within DEAD_WITHIN_S, by the end of its stdout if its first process is unknown."""
        if self._pidfd is not None:
            return bool(ready([self._pidfd], within_s=DEAD_WITHIN_S))
        until = time.monotonic() + DEAD_WITHIN_S
        while (stdout := self._stdout.fileno()) in self._open and ready([stdout], within_s=until - time.monotonic()):
            self._read(stdout)
        return stdout not in self._open

    def _reap(self) -> None:
        if self._process.returncode is None:
            _, status, used = os.wait4(self._process.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self._cpu_s = max(self._cpu_s, used.ru_utime + used.ru_stime)
            if self._group is not None:
                self._cpu_s = max(self._cpu_s, self._group.cpu_s())
                self._peak = max(self._peak, self._group.peak_bytes())
        if self._pidfd is not None:
            with suppress(ChildProcessError):  # ours only where we are the machine's, or the container's, first process
                os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)

    def judge_end(self, end: End) -> Result:
        """Return the end of the run, where that is not the watch's own doing.

        Raises SandboxError where bubblewrap was ended by a signal: that came from outside, for nothing inside sees it.
        """
        limits, code = self._job.limits, self._process.returncode
        number = code - 128 if code > 128 else None
        if end is End.EXITED and self._group is not None and self._group.ran_out_of_memory():
            end = End.MEMORY
        if end is End.EXITED and self._wrote > limits.output_bytes:
            end = End.OUTPUT
        if end is End.EXITED and (number == signal.SIGXCPU or self._cpu_s > limits.cpu_s):
            end = End.CPU_TIME
        if end is End.EXITED and code < 0:
            raise SandboxError(f"its sandbox was ended from outside, by {_signal_name(-code)}")
        if end is End.EXITED and number is not None:
            end = End.SIGNALLED
        keep = limits.output_bytes
        return Result(
            end=end,
            says=_sentence(end, self._job, code, number),
            exit_code=code if end is End.EXITED else None,
            signal=number if end is End.SIGNALLED else None,
            stdout=bytes(self._out[:keep]),
            stderr=bytes(self._err[: max(0, keep - len(self._out))]),
            start_s=self._released_at - self._started_at,
            wall_s=self._wall_s,
            cpu_s=self._cpu_s,
            peak_bytes=self._peak,
        )

    def close(self) -> None:
        self.kill()
        try:
            self._await_death()
        finally:
            if self._pidfd is not None:
                os.close(self._pidfd)
            for stream in (self._stdin, self._stdout, self._stderr):
                with suppress(OSError):
                    stream.close()


def _files_in(folder: int) -> int:
    there = os.statvfs(folder)
    return there.f_files - there.f_ffree


def _sentence(end: End, job: Job, code: int, number: int | None) -> str:
    limits = job.limits
    match end:
        case End.EXITED if code in COULD_NOT_EXEC:
            return f"it exited with {code}, as where {job.command[0]!r} is not there or can't be executed"
        case End.EXITED:
            return f"it exited with {code}"
        case End.SIGNALLED:
            return f"it was ended by {_signal_name(number or 0)}"
        case End.WALL_TIME:
            return f"it was ended after {limits.wall_s:g} s"
        case End.CPU_TIME:
            return f"it used more than {limits.cpu_s:g} CPU-seconds"
        case End.MEMORY:
            return f"it used more than {limits.memory_bytes / 2**20:,.0f} MiB of memory"
        case End.OUTPUT:
            return f"it wrote more than {limits.output_bytes:,} bytes"
        case End.FILES:
            return f"it made more than {limits.files:,} files"
        case End.CANCELLED:
            return "it was called off"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}, or exited with {number + 128}"
