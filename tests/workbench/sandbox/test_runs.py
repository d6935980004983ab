"""How a run ends, what comes out of it, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import gettempdir

import psutil
import pytest

from tests.processes import marked
from tests.waiting import until, wait_until
from tests.workbench.sandbox.conftest import OF_EACH_USER, AsUser, Direct, of_our_own
from workbench.sandbox import cgroup
from workbench.sandbox.bubblewrap import MOST_SIGNALS
from workbench.sandbox.job import MAX_FILES, End, Job, Result, SandboxError
from workbench.sandbox.limits import MIB, Limits
from workbench.sandbox.process_tree import CpuTime, usage
from workbench.sandbox.running import Stop, run
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.settings import SandboxSettings
from workbench.sandbox.syscalls import filters
from workbench.trees import collect, open_beneath

MARK = "ratchet-marked-process"


def python(code: str, **of_job: object) -> Job:
    return Job(["python3", "-I", "-S", "-c", code, MARK], **of_job)  # type: ignore[arg-type]


def test_files_go_in_and_out_with_what_was_said(run_job: Direct | AsUser) -> None:
    code = (
        "import sys, os; text = open('deep/in.txt').read() + sys.stdin.read() + os.environ['WORD'];"
        "os.makedirs('made'); open('made/out.txt', 'w').write(text); print('said'); print('warned', file=sys.stderr);"
        "sys.exit(3)"
    )
    job = python(
        code,
        files={"deep/in.txt": b"file "},
        stdin=b"stdin ",
        environment={"WORD": "variable"},
        collect=["made/out.txt", "deep/in.txt", "nothing"],
    )

    result = run_job(job)

    assert (result.end, result.exit_code) == (End.EXITED, 3)
    assert (result.stdout, result.stderr) == (b"said\n", b"warned\n")
    assert dict(result.files) == {"made/out.txt": b"file stdin variable", "deep/in.txt": b"file "}
    assert dict(result.left_out) == {"nothing": "not there"}


def test_variables_are_the_commands_alone(run_here: Direct) -> None:
    """The linker of each program that sees LD_PRELOAD complains once, also that of a shell before the command."""
    environment = {"LD_PRELOAD": "/none.so", "word": " a  $b\n", "HOME": "/tmp", "PATH": "/workspace/here:/bin"}
    code = b"#!/usr/bin/python3 -ISs\nimport os\nprint([os.environ[one] for one in ('word', 'HOME', 'USER')])"
    files = {"here/tool": code}

    result = run_here(Job(["tool"], environment=environment, files=files, executable=frozenset(files)))

    assert result.stdout == b"[' a  $b\\n', '/tmp', 'sandbox']\n", result
    assert result.stderr.count(b"cannot be preloaded") == 1


def test_as_many_files_go_in_as_may_and_no_more_are_open(run_here: Direct) -> None:
    files = {f"folder/{number}": b"x" for number in range(MAX_FILES)}
    code = (
        "import os\nprint(len(os.listdir('folder')))\ntry:\n    while True: last = os.dup(0)\n"
        "except OSError: print(last)"
    )

    result = run_here(python(code, files=files, limits=Limits(open_files=32)))

    assert result.stdout.split() == [str(MAX_FILES).encode(), b"31"], result
    with pytest.raises(SandboxError, match="mount a folder"):
        python(code, files={**files, "more": b""})


IN_SOCKETS = """
import os, signal, socket
for _ in range(2): os.fork()
kept = []
try:
    while True:
        for one in (pair := socket.socketpair()):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
            one.setblocking(False)
            try:
                while True: one.send(bytes(1 << 15))
            except BlockingIOError: pass
        kept.append(pair)
except OSError: signal.pause()
"""
IN_PAGE_TABLES = """
import mmap, signal
kept = mmap.mmap(-1, 1 << 38, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
for at in range(0, 1 << 38, 1 << 21): kept[at]
signal.pause()
"""
UNDER_A_NAME_THAT_IS_NO_TEXT = """
import ctypes, os, signal
ctypes.CDLL(None).prctl(15, b"\\xff\\xfe")
for _ in range(2): os.fork()
kept = bytearray(b"x" * (60 << 20))
signal.pause()
"""
SMALL = Limits(wall_s=60, cpu_s=20, memory_bytes=128 * MIB, output_bytes=10_000, files=500)
KERNELS = Limits(wall_s=60, cpu_s=60, memory_bytes=128 * MIB)
ENDS: dict[str, tuple[str, Limits, End]] = {
    "hangs": ("import signal; signal.pause()", Limits(wall_s=0.3), End.WALL_TIME),
    "ignores every signal it can": (
        "import signal\nfor one in range(1, 32):\n    try: signal.signal(one, signal.SIG_IGN)\n"
        "    except OSError: pass\nwhile True: signal.pause()",
        Limits(wall_s=0.3),
        End.WALL_TIME,
    ),
    "stops itself": ("import os; os.kill(os.getpid(), 19)", Limits(wall_s=0.3), End.WALL_TIME),
    "closes what it writes to and stays": (
        "import os, signal; os.close(1); os.close(2); signal.pause()",
        Limits(wall_s=0.3),
        End.WALL_TIME,
    ),
    "burns the CPU": ("while True: pass", Limits(wall_s=60, cpu_s=0.3), End.CPU_TIME),
    "burns it in many processes": (
        "import os\nfor _ in range(3): os.fork()\nwhile True: pass",
        Limits(wall_s=60, cpu_s=1),
        End.CPU_TIME,
    ),
    "floods stdout": ("import os\nwhile True: os.write(1, bytes(9999))", SMALL, End.OUTPUT),
    "floods stderr": ("import os\nwhile True: os.write(2, bytes(9999))", SMALL, End.OUTPUT),
    "floods and is gone": ("import os; os.write(1, bytes(20_000))", SMALL, End.OUTPUT),
    "makes empty files": (
        "import os, itertools\nfor one in itertools.count(): os.close(os.open(f'/tmp/{one}', os.O_CREAT))",
        SMALL,
        End.FILES,
    ),
    "has the kernel's memory in sockets": (IN_SOCKETS, KERNELS, End.MEMORY),
    "has the kernel's memory in page tables": (IN_PAGE_TABLES, KERNELS, End.MEMORY),
    "has memory under a name that is no text": (UNDER_A_NAME_THAT_IS_NO_TEXT, SMALL, End.MEMORY),
    "crashes": ("import os; os.kill(os.getpid(), 11)", SMALL, End.SIGNALLED),
    "kills all it can": ("import os; os.kill(-1, 9)", SMALL, End.EXITED),
}


@pytest.mark.parametrize("what", ENDS)
def test_what_a_program_does_wrong_ends_its_run_with_a_reason(what: str, run_job: Direct | AsUser) -> None:
    code, limits, end = ENDS[what]

    result = run_job(python(code, limits=limits))

    assert result.end is end or (what == "kills all it can" and result.end is End.SIGNALLED), result
    assert result.says
    assert len(result.stdout) + len(result.stderr) <= limits.output_bytes
    assert marked(MARK) == []


def test_memory_of_all_processes_together_is_held(run_job: Direct | AsUser) -> None:
    code = "import os, signal\nfor _ in range(2): os.fork()\nkept = bytearray(b'x' * (60 << 20))\nsignal.pause()"

    result = run_job(python(code, limits=SMALL))

    assert result.end is End.MEMORY or result.end in (End.SIGNALLED, End.WALL_TIME), result
    assert result.end is End.MEMORY
    assert marked(MARK) == []


DAEMON = (
    "import os, signal\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        signal.pause()\n"
    "    os._exit(0)\nos.wait()\nprint('parent done', flush=True)"
)


def test_a_daemon_is_gone_when_its_parent_is(run_job: Direct | AsUser) -> None:
    """It holds stdout open, has a session of its own, and its parent has ended."""
    result = run_job(python(DAEMON, limits=Limits(wall_s=20)))

    assert result.end is End.EXITED
    assert result.stdout == b"parent done\n"
    assert result.wall_s < 15
    assert marked(MARK) == []


def test_the_daemon_lives_on_outside(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", DAEMON, MARK], stdout=subprocess.DEVNULL, check=True)

    left = marked(MARK)
    for pid in left:
        os.kill(int(pid), 9)
    assert len(left) == 1
    wait_until(lambda: not marked(MARK))


def test_a_sandbox_that_is_killed_from_outside_is_no_end_of_its_program(run_here: Direct) -> None:
    stop = Stop()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run, python("import signal; signal.pause()"), filters(), cgroup.find(), stop)
        wait_until(lambda: any(is_python(pid) for pid in marked(MARK)))

        (outer,) = [child for child in psutil.Process().children() if MARK in child.cmdline()]
        outer.kill()

        with pytest.raises(SandboxError, match="ended from outside, by SIGKILL"):
            running.result()
    stop.close()
    assert marked(MARK) == []


REWRITES = """
import errno, os
for place in ("/proc/self/mem", "/proc/1/mem", "/proc/1/task/1/mem"):
    try:
        os.close(os.open(place, os.O_RDWR))
        print(place)
    except OSError as error:
        print(error.errno == errno.EROFS)
"""


def test_the_first_process_can_not_be_rewritten(run_job: Direct | AsUser) -> None:
    """It has the run end with whoever waits for it, even by kill -9."""
    assert run_job(python(REWRITES)).stdout.decode().split() == ["True"] * 3


TIMERS = """
import ctypes, platform
libc, made = ctypes.CDLL(None), 0
while libc.syscall(222 if platform.machine() == "x86_64" else 107, 0, None, ctypes.byref(ctypes.c_int())) >= 0:
    made += 1
print(made)
"""


def test_no_run_takes_the_timers_of_its_neighbours(run_job: Direct | AsUser) -> None:
    assert 0 < int(run_job(python(TIMERS)).stdout) <= MOST_SIGNALS


def test_no_group_is_left_over(run_here: Direct) -> None:
    cgroups = cgroup.find()
    if cgroups is None:
        pytest.skip("no cgroup can be made on this machine")
    stop = Stop()

    run(python(DAEMON), filters(), cgroups, stop)
    stop.close()

    assert [path for folder in cgroups.folders for path in folder.glob(f"{cgroup.PREFIX}{os.getpid()}-*")] == []


UNWAITED = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(60):
    reading, writing = os.pipe()
    if os.fork() == 0:
        until = time.process_time() + 0.01
        while time.process_time() < until: pass
        os._exit(0)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
"""
"""Each is gone before anybody looks, and its time is nobody's."""


def test_a_group_counts_the_time_of_processes_that_nobody_waited_for() -> None:
    cgroups = cgroup.find()
    if cgroups is None or (cgroups.version == 1 and len(cgroups.folders) == len(cgroup.NEEDED)):
        pytest.skip("no cgroup that counts CPU can be made on this machine")
    stop = Stop()

    result = run(python(UNWAITED, limits=Limits(wall_s=60)), filters(), cgroups, stop)
    stopped = run(python(UNWAITED, limits=Limits(wall_s=60, cpu_s=0.3)), filters(), cgroups, stop)
    stop.close()

    assert result.succeeded
    assert result.cpu_s >= 0.6
    assert stopped.end is End.CPU_TIME


@pytest.mark.parametrize(
    ("sums", "counted"),
    [
        ([0.1, 0.3, 0.3, 0.5], 0.5),
        ([0.1, 0.4, 0.1, 0.4, 0.4], 0.4),  # missed once, between its end and its parent's turn
        ([0.3, 0.1, 0.3, 0.1, 0.1, 0.3], 0.5),  # one that nobody waited for took 0.2 along
        ([0.25, 0.0, 0.0, 0.25, 0.0, 0.0, 0.25, 0.0], 0.75),
    ],
)
def test_time_that_was_seen_counts_though_nobody_waits_for_it(sums: list[float], counted: float) -> None:
    time = CpuTime()
    for one in sums:
        time.add_reading(one)

    assert time.seconds == pytest.approx(counted)


def test_a_group_that_cannot_be_whole_leaves_nothing(tmp_path: Path) -> None:
    groups = cgroup.Cgroups(1, (tmp_path, tmp_path / "none"))

    with pytest.raises(OSError, match="none"):
        groups.group(Limits())

    assert list(tmp_path.iterdir()) == []


def test_groups_of_another_container_are_left_until_they_are_empty_for_a_day(tmp_path: Path) -> None:
    new, forgotten = (tmp_path / f"{cgroup.PREFIX}4194999-1-7-{name}" for name in ("new", "forgotten"))
    for path in (new, forgotten):
        path.mkdir()
    os.utime(forgotten, (0, 0))

    assert cgroup.Cgroups(2, (tmp_path,)).sweep() == 1
    assert list(tmp_path.iterdir()) == [new]


def test_groups_of_a_process_that_is_gone_are_swept() -> None:
    found = cgroup.find()
    if found is None:
        pytest.skip("no cgroup can be made on this machine")
    with ExitStack() as stack:
        cgroups = of_our_own(found, stack)
        gone, had_our_number = "4194999-1-left", f"{os.getpid()}-1-left"
        left = [folder / f"{cgroup.PREFIX}{name}" for folder in cgroups.folders for name in (gone, had_our_number)]
        for path in left:
            path.mkdir()
        stack.callback(cgroups.group(Limits()).remove)

        assert cgroups.sweep() == len(left)
        assert [path for path in left if path.exists()] == []
        assert list(cgroups.folders[0].glob(f"{cgroup.PREFIX}{os.getpid()}-*"))


ESCAPES = {
    "a link to a file": "os.symlink('/etc/passwd', 'out')",
    "a link to a folder": "os.symlink('/etc', 'folder')",
    "a magic link": "os.symlink('/proc/self/root/etc', 'folder')",
    "a folder": "os.mkdir('out')",
    "a FIFO": "os.mkfifo('out')",
    "a socket": "import socket; socket.socket(socket.AF_UNIX).bind('out')",
    "a link to itself": "os.symlink('out', 'out')",
    "too much": "open('out', 'wb').write(bytes(2 << 20))",
    "too much of nothing": "os.truncate(os.open('out', os.O_CREAT | os.O_RDWR), 30 << 20)",
}


@pytest.mark.parametrize("run_job", OF_EACH_USER, indirect=True, scope="session")
@pytest.mark.parametrize("what", ESCAPES)
def test_only_plain_files_of_the_workspace_come_out(what: str, run_job: Direct | AsUser) -> None:
    limits = Limits(collected_bytes=MIB)
    result = run_job(python(f"import os; {ESCAPES[what]}", collect=["out", "folder/passwd"], limits=limits))

    assert result.succeeded, result
    assert dict(result.files) == {}
    assert set(result.left_out) == {"out", "folder/passwd"}


def test_what_comes_out_is_within_its_limit_all_together(run_here: Direct) -> None:
    code = "for one in 'ab': open(one, 'wb').write(bytes(600_000))"
    result = run_here(python(code, collect=["a", "b"], limits=Limits(collected_bytes=1_000_000)))

    assert set(result.files) == {"a"}
    assert result.left_out == {"b": "with it there would be more than 1,000,000 bytes"}


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../out", "a/../../out", "a\0b", "a/"])
def test_a_path_that_leaves_the_workspace_is_refused_before_anything_runs(path: str) -> None:
    with pytest.raises(SandboxError, match="no path of a file"):
        Job(["true"], collect=[path])
    with pytest.raises(SandboxError, match="no path of a file"):
        Job(["true"], files={path: b""})


def test_a_path_that_is_swapped_for_a_link_is_never_followed(tmp_path: Path) -> None:
    """openat2 decides and opens in one step; 20,000 tries against somebody who swaps it all the time."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "file").write_text("secret")
    work = tmp_path / "work"
    (work / "real").mkdir(parents=True)
    (work / "real" / "file").write_text("mine")
    (work / "link").symlink_to(secret)
    (work / "real").rename(work / "name")
    end = threading.Event()

    def swap() -> None:
        while not end.is_set():
            for put, back in (("link", "real"), ("real", "link")):
                try:
                    (work / "name").rename(work / back)
                    (work / put).rename(work / "name")
                except OSError:
                    continue

    swapping = threading.Thread(target=swap)
    swapping.start()
    folder = os.open(work, os.O_PATH)
    try:
        read = {content for _ in range(20_000) for content in collect(folder, ["name/file"], 100).files.values()}
    finally:
        end.set()
        swapping.join()
        os.close(folder)
    assert read <= {b"mine"}


def test_a_way_that_leads_out_is_not_opened(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_PATH)
    try:
        with pytest.raises(OSError, match="cross-device"):
            open_beneath(folder, "../anything")
    finally:
        os.close(folder)


@pytest.fixture
def service(passable: Path) -> Iterator[Path]:
    """A Unix socket that answers, where every user may connect."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(passable / "socket"))
        (passable / "socket").chmod(0o777)
        server.listen()

        def answer() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.sendall(b"hello " + client.recv(100))

        threading.Thread(target=answer, daemon=True).start()
        yield passable / "socket"
        server.shutdown(socket.SHUT_RDWR)


ASK = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/way-out'); s.sendall(b'me'); print(s.recv(99))"


def test_a_socket_that_is_given_is_the_way_out(service: Path, run_job: Direct | AsUser) -> None:
    given = run_job(python(ASK, sockets={"/run/way-out": service}))
    not_given = run_job(python(ASK))

    assert given.stdout == b"b'hello me'\n", given
    assert not_given.exit_code == 1


def test_a_descriptor_that_is_given_is_open_inside(run_here: Direct) -> None:
    ours, theirs = socket.socketpair()
    code = f"import socket; socket.socket(fileno={theirs.fileno()}).sendall(b'from inside')"

    result = run_here(python(code, descriptors=[theirs.fileno()]))

    theirs.close()
    assert result.succeeded, result
    assert ours.recv(100) == b"from inside"
    ours.close()


def test_a_mounted_folder_can_be_read_and_not_written(run_here: Direct, passable: Path) -> None:
    passable.chmod(0o777)
    (passable / "file").write_text("given")
    code = "print(open('/given/file').read()); open('/given/more', 'w')"

    result = run_here(python(code, mounts={"/given": passable}))

    assert result.stdout == b"given\n", result
    assert b"Read-only file system" in result.stderr


def test_a_link_leads_to_the_workspace_by_another_name(run_here: Direct) -> None:
    code = "open('/app/out', 'w').write('by another name')"

    result = run_here(python(code, links={"/app": "/workspace"}, directory="/app", collect=["out"]))

    assert result.succeeded, result
    assert result.files == {"out": b"by another name"}


@pytest.mark.parametrize("place", ["/usr/app", "/", "app", "/proc/app"])
def test_a_link_is_nowhere_in_what_the_sandbox_is_made_of(place: str) -> None:
    with pytest.raises(SandboxError):
        Job(["true"], links={place: "/workspace"})


def test_a_command_that_is_not_there_is_the_jobs_fault_and_is_named(run_here: Direct) -> None:
    result = run_here(Job(["no-such-program"]))

    assert result.exit_code == 127
    assert "'no-such-program' is not there" in result.says


def test_a_sandbox_that_cannot_be_set_up_is_an_error_and_no_result(run_here: Direct) -> None:
    with pytest.raises(SandboxError, match=r"can't be set up: .*no-such-folder"):
        run_here(Job(["true"], mounts={"/x": Path("/no-such-folder")}))


async def test_a_run_that_is_called_off_is_gone_when_its_caller_hears_of_it(needs_bubblewrap: None) -> None:
    sandbox = Sandbox(None, runs_at_once=1)
    running = asyncio.create_task(sandbox.run(python("import signal; signal.pause()")))
    await until(lambda: marked(MARK))

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert marked(MARK) == []
    assert (await sandbox.run(python("print(1)"))).stdout == b"1\n"


async def test_as_many_run_at_once_as_may(needs_bubblewrap: None) -> None:
    sandbox = Sandbox(None, runs_at_once=2)
    hold = "import threading; threading.Event().wait(0.5)"
    results = asyncio.gather(*(sandbox.run(python(hold)) for _ in range(4)))
    seen = 0
    while not results.done():
        seen = max(seen, len({pid for pid in marked(MARK) if Path(f"/proc/{pid}/comm").exists() and is_python(pid)}))
        await asyncio.sleep(0)
    assert {result.end for result in await results} == {End.EXITED}
    assert 1 <= seen <= 2


def mounted() -> list[str]:
    """Without the disks of other tests, which come and go meanwhile."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if f" {gettempdir()}/" not in line]


def is_python(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("python")
    except OSError:
        return False


def test_the_self_test_passes_here_and_says_what_holds(needs_bubblewrap: None) -> None:
    sandbox = Sandbox.open(SandboxSettings())

    assert "namespaces" in sandbox.facts.says
    assert "limits by" in sandbox.facts.says


def test_usage_is_that_of_the_whole_tree() -> None:
    used = usage(os.getpid())

    assert used.bytes > MIB
    assert used.cpu_s > 0


def test_nothing_is_greater_than_zero_but_a_limit() -> None:
    with pytest.raises(ValueError, match="wall_s"):
        Limits(wall_s=0)


def test_a_result_that_exited_with_zero_is_a_success() -> None:
    assert Result(End.EXITED, "", exit_code=0).succeeded
    assert not Result(End.EXITED, "", exit_code=1).succeeded
    assert not Result(End.WALL_TIME, "").succeeded


HELD = f"""
import sys
from workbench.sandbox import cgroup
from workbench.sandbox.job import Job
from workbench.sandbox.running import Stop, run
from workbench.sandbox.syscalls import filters
run(Job(["python3", "-I", "-S", "-c", "import signal; signal.pause()", "{MARK}"]), filters(), cgroup.find(), Stop())
"""


def test_nothing_runs_on_when_the_service_is_killed(needs_bubblewrap: None) -> None:
    """Not even a file or a mount is left: all of a sandbox's are in memory and its own. Its cgroup is swept later."""
    mounts = mounted()
    service = subprocess.Popen([sys.executable, "-c", HELD], cwd=Path(__file__).parents[3])
    wait_until(lambda: any(is_python(pid) for pid in marked(MARK) if int(pid) != service.pid))

    service.kill()
    service.wait()

    wait_until(lambda: not marked(MARK))
    assert mounted() == mounts
    if (cgroups := cgroup.find()) is not None:
        cgroups.sweep()
        assert [path for folder in cgroups.folders for path in folder.glob(f"{cgroup.PREFIX}{service.pid}-*")] == []
