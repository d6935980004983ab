"""A way out for clients that know no Unix sockets: a port of the sandbox's own, answered by somebody outside."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.workbench.sandbox.answering import SaysBack
from tests.workbench.sandbox.conftest import AsUser, Direct
from workbench.sandbox.job import End, Job, SandboxError
from workbench.sandbox.limits import Limits

PORT = 4711


def python(code: str, **given: object) -> Job:
    return Job(["python3", "-I", "-S", "-c", code], **given)  # type: ignore[arg-type]


OUT = {PORT: SaysBack()}


TALK = f"""
import socket, threading
def talk(number, size):
    with socket.create_connection(("127.0.0.1", {PORT})) as one:
        sent = bytes([number]) * size
        threading.Thread(target=lambda: (one.sendall(sent), one.shutdown(socket.SHUT_WR))).start()
        heard = b""
        while part := one.recv(65536): heard += part
        return heard == sent
"""


def test_what_is_said_to_the_port_is_heard_outside_both_ways(run_job: Direct | AsUser) -> None:
    code = f"{TALK}\nprint(all(talk(n, size) for n, size in enumerate((0, 1, 100, 3_000_000))))"

    result = run_job(python(code, listeners=OUT))
    without = run_job(python(code))

    assert (result.stdout, result.exit_code) == (b"True\n", 0), result
    assert without.exit_code == 1 and b"ConnectionRefusedError" in without.stderr


def test_connections_side_by_side_do_not_wait_for_each_other(run_here: Direct) -> None:
    code = f"""{TALK}
held = [socket.create_connection(("127.0.0.1", {PORT})) for _ in range(40)]
print(talk(7, 100_000), all(one.sendall(b"x") is None and one.recv(1) == b"x" for one in held))
"""
    result = run_here(python(code, listeners=OUT))

    assert (result.stdout, result.exit_code) == (b"True True\n", 0), result


@pytest.mark.parametrize(
    ("code", "exit_code", "number"),
    [("raise SystemExit(7)", 7, None), ("import os; os.kill(os.getpid(), 9)", None, 9), ("print(input())", 0, None)],
)
def test_the_end_of_the_command_is_the_end_of_the_run(
    code: str, exit_code: int | None, number: int | None, run_here: Direct
) -> None:
    result = run_here(python(code, listeners=OUT, stdin=b"hello\n"))

    assert (result.exit_code, result.signal) == (exit_code, number)
    assert result.stdout == (b"hello\n" if exit_code == 0 else b"")


def test_an_answer_in_two_writes_does_not_wait_for_the_first_to_be_acknowledged(run_here: Direct) -> None:
    taken: list[int] = []

    def take(listening: socket.socket) -> None:
        with listening:
            taken.append(listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    assert run_here(Job(["true"], listeners={PORT: take})).succeeded
    assert taken == [1]


def test_a_command_that_is_not_there_is_told_as_ever(run_here: Direct) -> None:
    assert run_here(Job(["no-such-command"], listeners=OUT)).exit_code == 127


def test_what_is_left_with_a_connection_open_is_gone_with_the_command(run_here: Direct) -> None:
    code = f"""{TALK}
import os, signal
if os.fork() == 0:
    one = socket.create_connection(("127.0.0.1", {PORT})); signal.pause()
"""
    result = run_here(python(code, listeners=OUT, limits=Limits(wall_s=20)))

    assert (result.end, result.exit_code) == (End.EXITED, 0)
    assert result.wall_s < 10


ESCAPES = f"""
import os, socket
out = []
for address in ("127.0.0.1", "192.0.2.1", "0.0.0.0"):
    for port in (HOST_PORT, {PORT + 1}):
        try: socket.create_connection((address, port), timeout=2); out.append((address, port))
        except OSError: pass
for fd in range(3, 64):
    try: out.append((fd, os.readlink(f"/proc/self/fd/{{fd}}")))
    except OSError: pass
for path in ("/given",):
    try: os.unlink(path); out.append(path)
    except OSError: pass
    try: open(path, "w"); out.append(path)
    except OSError: pass
print(out, open("/given").read())
"""


def test_a_listener_opens_no_other_way_out_and_what_is_given_stays_as_it_is(run_job: Direct | AsUser) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        code = ESCAPES.replace("HOST_PORT", str(port))
        result = run_job(python(code, listeners=OUT, data={"/given": b"as it was"}))

    assert result.stdout == b"[] as it was\n", result


@pytest.mark.parametrize("path", ["relative", "/", "/usr/x", "/proc/1/x", "/dev/null", "/a/../usr/x"])
def test_nothing_is_put_where_the_sandbox_itself_is(path: str) -> None:
    for kind in ("mounts", "data", "sockets"):
        with pytest.raises(SandboxError, match=r"can't be given to a job|no place in the sandbox"):
            Job(["true"], **{kind: {path: b"" if kind == "data" else Path("/tmp")}})  # type: ignore[arg-type]
