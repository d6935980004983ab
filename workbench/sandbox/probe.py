"""The attacks that the self-test runs, inside the sandbox and outside: each attack says whether it got through.

The standard library alone, for it is sent into the sandbox as text. Its argument is JSON: what there is to be reached.
"""

import ctypes
import json
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

KEYCTL = {"x86_64": 250, "aarch64": 219}
NEW_USER = 0x10000000
LEAKED = os.makedev(1, 7)
"""/dev/full."""


def network(target: dict[str, Any]) -> bool:
    with socket.create_connection(("127.0.0.1", target["port"]), timeout=1):
        return True


def abstract_socket(target: dict[str, Any]) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + target["abstract"])
        return True


def files(target: dict[str, Any]) -> bool:
    return bool(Path(target["file"]).read_text() == target["secret"])


def write(target: dict[str, Any]) -> bool:
    Path(target["file"] + ".written").write_text("here")
    return True


def environment(target: dict[str, Any]) -> bool:
    found = False
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            found |= target["secret"].encode() in place.read_bytes()
        except OSError:
            continue
    return found


def processes(target: dict[str, Any]) -> bool:
    fields = Path(f"/proc/{target['pid']}/stat").read_text().rpartition(")")[2].split()
    return bool(fields[19] == target["started"])


def descriptors(_: dict[str, Any]) -> bool:
    """Look for leaked descriptors by their devices: there may be no /proc that has their names."""
    return any(_is_of(one, LEAKED) for one in range(3, 16_384))  # a busy process has high ones


def _is_of(descriptor: int, device: int) -> bool:
    try:
        about = os.fstat(descriptor)
    except OSError:
        return False
    return stat.S_ISCHR(about.st_mode) and about.st_rdev == device


def user_namespace(_: dict[str, Any]) -> bool:
    return bool(ctypes.CDLL(None, use_errno=True).unshare(NEW_USER) == 0)


def keyring(_: dict[str, Any]) -> bool:
    number = KEYCTL.get(os.uname().machine)
    return number is not None and bool(ctypes.CDLL(None, use_errno=True).syscall(number, 0, -3, 0) >= 0)


def main() -> None:
    target = json.loads(sys.argv[1])
    through = []
    for attack in (
        network, abstract_socket, files, write, environment, processes, descriptors, keyring, user_namespace,
    ):  # fmt: skip
        try:
            if attack(target):
                through.append(attack.__name__)
        except OSError:
            continue
    sys.stdout.write(json.dumps(through))


main()
