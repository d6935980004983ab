"""Does the sandbox hold on this machine? Attacks that are known to work outside, tried inside; and each limit, reached.

An attack that does not work outside proves nothing by failing inside, so each is tried there, too, but for those that a
container or an ordinary user is refused anyway.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from workbench.sandbox.job import End, Job, Result, SandboxRefused
from workbench.sandbox.limits import MIB, Limits
from workbench.sandbox.process_tree import start_time

WORK_OUTSIDE = frozenset({"network", "abstract_socket", "files", "write", "environment", "processes", "descriptors"})
LIMITS = Limits(wall_s=20.0, cpu_s=10.0, memory_bytes=256 * MIB, processes=8, workspace_bytes=4 * MIB)

REACH_LIMITS = """
import os, sys, time
reached = []
try:
    with open("/workspace/filling", "wb") as file:
        for _ in range(64): file.write(bytes(1 << 20))
        file.flush()
except OSError: reached.append("workspace")
os.path.exists("/workspace/filling") and os.unlink("/workspace/filling")
children = []
try:
    for _ in range(32):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        children.append(child)
except OSError: reached.append("processes")
for child in children: os.kill(child, 9)
print(" ".join(reached), flush=True)
kept = []
try:
    for _ in range(64): kept.append(bytearray(b"x" * (16 << 20)))
except MemoryError:
    print("memory", flush=True)
else:
    time.sleep(30)
    print("nothing held the memory", flush=True)
"""

RunJob = Callable[[Job], Result]


def self_test(run: RunJob) -> None:
    """Raises SandboxRefused with what got through, or SandboxError where nothing can be run at all."""
    with ExitStack() as stack:
        target = _target(stack)
        probe = (Path(__file__).parent / "probe.py").read_text()
        outside = _outside(probe, target)
        if missing := WORK_OUTSIDE - outside:
            raise SandboxRefused(
                f"the self-test proves nothing: outside a sandbox too fails {', '.join(sorted(missing))}"
            )
        if inside := _inside(run, probe, target):
            raise SandboxRefused(f"the sandbox leaks: {', '.join(sorted(inside))} can be reached from inside")
    _limits_hold(run)


def _target(stack: ExitStack) -> Mapping[str, Any]:
    """Something to be reached, of each kind."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ratchet-sandbox-")))
    folder.chmod(0o755)
    secret = secrets.token_hex(16)
    (folder / "file").write_text(secret)
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    name = f"ratchet-{secrets.token_hex(8)}"
    abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
    abstract.bind(f"\0{name}")
    abstract.listen()
    leaked = os.open("/dev/full", os.O_WRONLY)
    os.set_inheritable(leaked, True)
    stack.callback(os.close, leaked)
    return {
        "port": listener.getsockname()[1],
        "abstract": name,
        "file": str(folder / "file"),
        "secret": secret,
        "pid": os.getpid(),
        "started": start_time(os.getpid()),
        "descriptor": leaked,
    }


def _outside(probe: str, target: Mapping[str, Any]) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", probe, json.dumps(target)],
        env={"SECRET": target["secret"]},
        pass_fds=[target["descriptor"]],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return set(json.loads(run.stdout)) if run.returncode == 0 else set()


def _inside(run: RunJob, probe: str, target: Mapping[str, Any]) -> set[str]:
    result = run(Job(["python3", "-I", "-S", "-c", probe, json.dumps(target)], limits=LIMITS))
    if not result.succeeded:
        said = result.stderr[-300:].decode(errors="replace").strip()
        raise SandboxRefused(
            f"the self-test can't be run inside, where it needs python3 below /usr: {result.says} {said}"
        )
    return set(json.loads(result.stdout))


def _limits_hold(run: RunJob) -> None:
    result = run(Job(["python3", "-I", "-S", "-c", REACH_LIMITS], limits=LIMITS))
    reached = set(result.stdout.decode(errors="replace").split())
    if result.end is End.MEMORY:
        reached.add("memory")
    if missing := {"workspace", "processes", "memory"} - reached:
        raise SandboxRefused(f"no limit holds {', '.join(sorted(missing))} in the sandbox ({result.says})")
