"""Runs in the sandbox, as `python3 -I -S -c`: unpacks a tree, runs a command in it, says what came of it and changed.

On stdin a line of JSON (the order), then the files' content, one behind the other; on stdout the same the other way
round. It knows nothing of this project.
"""

import json
import os
import subprocess
import sys
from typing import Any, BinaryIO

KEPT = {
    "core.filemode", "core.ignorecase", "core.autocrlf", "core.eol", "core.symlinks", "core.precomposeunicode",
    "user.name", "user.email", "extensions.objectformat",
}  # fmt: skip
"""All that is kept of a repository's own configuration: nothing of it names a program, a file or an address."""


def unpack(order: dict[str, Any], stream: BinaryIO) -> None:
    for path, kind, mode, what in order["entries"]:
        place = os.path.join(order["tree"], path)
        if kind == "folder":
            os.makedirs(place, exist_ok=True)
        elif kind == "link":
            os.symlink(what, place)
        else:
            with open(place, "wb") as file:
                left = what
                while left:
                    part = stream.read(min(left, 1 << 20))
                    if not part:
                        raise SystemExit("the tree came cut off")
                    file.write(part)
                    left -= len(part)
            os.chmod(place, mode)


def own_config(tree: str) -> None:
    """Replace the repository's configuration by what may be kept of it."""
    place = os.path.join(tree, ".git", "config")
    read = subprocess.run(
        ["git", "config", "--file", place, "--no-includes", "--null", "--list"],
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
        cwd="/",
    )
    pairs = (one.partition(b"\n")[::2] for one in read.stdout.split(b"\0"))
    kept = {name.decode("utf-8", "replace"): value for name, value in pairs if name.decode("utf-8", "replace") in KEPT}
    kept.setdefault("user.name", b"Ratchet tools")
    kept.setdefault("user.email", b"tools@ratchet.invalid")
    sections = {
        "core": {"repositoryformatversion": b"1" if "extensions.objectformat" in kept else b"0", "bare": b"false"}
    }
    for name, value in kept.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = value
    with open(place, "wb") as file:
        for section, values in sections.items():
            file.write(b"[" + section.encode() + b"]\n")
            for key, value in values.items():
                quoted = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
                file.write(b"\t" + key.encode() + b' = "' + quoted + b'"\n')


def scan_tree(tree: str) -> dict[str, tuple[Any, ...]]:
    """The kind of each path, and what tells whether it was changed."""
    found: dict[str, tuple[Any, ...]] = {}
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(os.path.join(tree, folder)) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
                status = entry.stat(follow_symlinks=False)
                if entry.is_symlink():
                    found[path] = ("link", os.readlink(entry.path), 0, 0)
                elif entry.is_dir(follow_symlinks=False):
                    found[path] = ("folder", "", 0, 0)
                    waiting.append(path)
                elif entry.is_file(follow_symlinks=False):
                    found[path] = ("file", status.st_mtime_ns, status.st_size, status.st_mode & 0o777, status.st_ino)
    return found


def main() -> None:
    stream, answer = sys.stdin.buffer, sys.stdout.buffer
    order = json.loads(stream.readline())
    tree = order["tree"]
    os.makedirs(tree, exist_ok=True)
    unpack(order, stream)
    if order["git"]:
        own_config(tree)
    before = scan_tree(tree) if order["changes"] else {}
    run = subprocess.run(
        order["command"], cwd=tree, env={**os.environ, **order["environment"]}, stdin=subprocess.DEVNULL,
        capture_output=True, check=False,
    )  # fmt: skip
    after = scan_tree(tree) if order["changes"] else {}
    changed = [path for path, what in sorted(after.items()) if before.get(path) != what]
    removed = sorted(path for path in before if path not in after)
    entries, contents = [], []
    for path in changed:
        kind = after[path][0]
        content = b""
        if kind == "file":
            with open(os.path.join(tree, path), "rb") as file:
                content = file.read()
        entries.append(
            [path, kind, after[path][3] if kind == "file" else 0, after[path][1] if kind == "link" else len(content)]
        )
        contents.append(content)
    out, err = run.stdout[: order["most"]], run.stderr[: order["most"]]
    reply = {
        "code": run.returncode, "stdout": len(out), "stderr": len(err), "cut": len(run.stdout) > len(out),
        "entries": entries, "removed": removed,
    }  # fmt: skip
    answer.write(json.dumps(reply).encode() + b"\n" + out + err)
    for content in contents:
        answer.write(content)


main()
