"""A command in the sandbox over a copy of the workspace, and what it changed, brought back.

The sandbox sees no folder of the host: the tree goes in as bytes and what changed comes out as bytes, so that a
repository is the same to it whoever owns the files, and can reach nothing but itself. What comes back is written by
`Tree`, and of `.git` only what git writes as data: no configuration, no hooks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.sandbox.job import End, Job, Result
from workbench.sandbox.limits import MIB, Limits
from workbench.tools.operation import ToolError
from workbench.tools.tree import Entry, Tree
from workbench.tools.workshop import Workshop

TREE = "tree"
"""Below the folder that a job begins in."""
DRIVER = (Path(__file__).parent / "driver.py").read_text(encoding="utf-8")
MOST_OUTPUT = 4 * MIB
FROM_GIT = frozenset({"objects", "refs", "logs", "HEAD", "ORIG_HEAD", "index", "packed-refs", "COMMIT_EDITMSG"})
"""Names in a repository's own folder that may come back."""
NOT_INTO_GIT = frozenset({"hooks", "modules", "worktrees", "config.worktree", "attributes", "alternates"})
"""Names in it that don't go in: programs, other repositories, and ways out of this one."""
LAST = ("index", "packed-refs", "refs", "HEAD")
"""Written in this order, after what they point to."""

NOT_PROJECT = frozenset({".git", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox"})
"""Names of what is in a workspace and no part of the project: not seen by its tests and builds."""

Keep = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Order:
    """`keep` says which paths go in. `changes`: what the command changed comes back into the workspace."""

    command: Sequence[str]
    limits: Limits
    keep: Keep = lambda path: True
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, Path] = field(default_factory=dict)
    git: bool = False
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    stdout: str
    stderr: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Changed paths that were not brought back, and why."""


def in_project(path: str) -> bool:
    return not NOT_PROJECT.intersection(PurePosixPath(path).parts)


async def run_in_copy(at: Workshop, order: Order) -> Ran:
    """Raises ToolError where it did not come to an end, or the workspace is too large."""
    if order.changes:
        async with at.writing:
            ran, reply, contents = await _run(at, order)
            left_out = await at.finish(_bring_back, at.tree, reply, contents)
            return Ran(ran.code, ran.stdout, ran.stderr, left_out)
    return (await _run(at, order))[0]


async def _run(at: Workshop, order: Order) -> tuple[Ran, dict[str, Any], memoryview]:
    limits = at.policy.limits
    entries, contents = await at.look(_pack, at.tree, order.keep, limits.entries, limits.tree_bytes)
    head = {
        "tree": TREE,
        "entries": entries,
        "git": order.git,
        "changes": order.changes,
        "command": list(order.command),
        "environment": dict(order.environment),
        "most": MOST_OUTPUT,
    }
    job = Job(
        ["python3", "-I", "-S", "-c", DRIVER],
        stdin=json.dumps(head).encode() + b"\n" + contents,
        environment={name: value for name, value in order.environment.items() if name == "PATH"},
        mounts=order.mounts,
        limits=order.limits,
    )
    result = await at.run(job)
    reply, rest = _reply(result)
    out, err = int(reply["stdout"]), int(reply["stderr"])
    stdout, stderr = (str(part, "utf-8", "replace") for part in (rest[:out], rest[out : out + err]))
    return Ran(int(reply["code"]), stdout, stderr), reply, rest[out + err :]


def limits_for(tree_bytes: int, seconds: float, memory_bytes: int, processes: int, entries: int) -> Limits:
    """Room for the tree twice, and for what comes back."""
    return Limits(
        wall_s=seconds,
        cpu_s=seconds * 4,
        memory_bytes=memory_bytes + 2 * tree_bytes,
        processes=processes,
        output_bytes=2 * tree_bytes + 4 * MOST_OUTPUT,
        file_bytes=2 * tree_bytes,
        workspace_bytes=2 * tree_bytes + 256 * MIB,
        files=4 * entries,
        open_files=1024,
    )


def _pack(tree: Tree, keep: Keep, most_entries: int, most_bytes: int) -> tuple[list[Sequence[Any]], bytes]:
    """Entries of the workspace, and their contents one behind the other."""
    entries: list[Sequence[Any]] = []
    contents = bytearray()
    for entry in tree.walk(".", most_entries):
        if not keep(entry.path) or _is_kept_from_git(entry.path):
            continue
        try:
            packed = _one(tree, entry, most_bytes - len(contents))
        except ToolError as error:
            if error.kind == "limit":
                raise ToolError(
                    "limit",
                    f"the workspace is larger than {most_bytes:,} bytes, which go into the sandbox: raise "
                    "limits.tree_bytes in the policy, or take out what is not needed",
                ) from None
            continue  # gone, or a link by now
        if packed is not None:
            entries.append((entry.path, entry.kind, entry.mode & 0o777, packed[0]))
            contents += packed[1]
    kept = {str(path) for path, kind, *_ in entries if kind == "folder"} | {"."}
    return [one for one in entries if str(PurePosixPath(one[0]).parent) in kept], bytes(contents)


def _one(tree: Tree, entry: Entry, room: int) -> tuple[int | str, bytes] | None:
    match entry.kind:
        case "folder":
            return 0, b""
        case "link":
            return tree.link(entry.path), b""
        case "file":
            content = tree.read(entry.path, max(0, room))
            return len(content), content
    return None


def _is_kept_from_git(path: str) -> bool:
    parts = PurePosixPath(path).parts
    if parts[0] != ".git" or parts[1:2] in (("refs",), ("logs",)):
        return False
    return bool(NOT_INTO_GIT.intersection(parts[1:2] + parts[-1:]))


def _reply(result: Result) -> tuple[dict[str, Any], memoryview]:
    head, found, rest = result.stdout.partition(b"\n")
    if result.end is not End.EXITED or result.exit_code != 0 or not found:
        if result.end in (End.EXITED, End.SIGNALLED):
            said = result.stderr[-300:].decode(errors="replace").strip()
            raise ToolError("ours", f"the sandboxed run failed: {result.says} {said}")
        raise ToolError("limit", f"{result.says}: do less at once, or raise the limit in the policy")
    try:
        reply = json.loads(head)
        sizes = [int(one[3]) for one in reply["entries"] if one[1] == "file"]
        if int(reply["stdout"]) + int(reply["stderr"]) + sum(sizes) > len(rest):
            raise ValueError
    except (ValueError, KeyError, TypeError, IndexError):
        raise ToolError("ours", "the sandboxed run gave no answer that can be read") from None
    return reply, memoryview(rest)


def _bring_back(tree: Tree, reply: Mapping[str, Any], contents: memoryview) -> dict[str, str]:
    """Write what was changed into the workspace. Return why not, for each path that was not brought back."""
    left_out, offset = dict[str, str](), 0
    changes: list[tuple[str, str, int, Any]] = []
    for path, kind, mode, what in reply["entries"]:
        size = int(what) if kind == "file" else 0
        changes.append(
            (str(path), kind, int(mode), bytes(contents[offset : offset + size]) if kind == "file" else what)
        )
        offset += size
    for path in sorted(reply["removed"], reverse=True):
        if _may_come_back(path) and not _in_order(path):
            _try(left_out, path, tree.remove, path)
    for path, kind, mode, what in sorted(changes, key=lambda one: _turn(one[0])):
        if not _may_come_back(path):
            if not path.startswith(".git"):
                left_out[path] = "it would be a repository of its own"
        elif kind == "folder":
            _try(left_out, path, tree.make_folder, path)
        elif kind == "link":
            _try(left_out, path, tree.symlink, path, str(what))
        else:
            _try(left_out, path, lambda path=path, what=what, mode=mode: _write(tree, path, what, mode))
    for path in sorted(reply["removed"], reverse=True):
        if _may_come_back(path) and _in_order(path):
            _try(left_out, path, tree.remove, path)
    return left_out


def _write(tree: Tree, path: str, content: bytes, mode: int) -> None:
    if (found := tree.find(path)) is not None and found.kind == "link":
        tree.remove(path)
    tree.write(path, content, mode=mode, sync=_in_order(path))


def _try(left_out: dict[str, str], path: str, function: Callable[..., Any], *arguments: Any) -> None:
    try:
        function(*arguments)
    except ToolError as error:
        if error.kind != "not_found":
            left_out[path] = str(error)


def _may_come_back(path: str) -> bool:
    parts = PurePosixPath(path).parts
    if not parts or parts[0] != ".git":
        return not any(part.casefold() == ".git" for part in parts)
    return len(parts) > 1 and parts[1] in FROM_GIT and parts[1:3] != ("objects", "info")


def _in_order(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return len(parts) > 1 and parts[0] == ".git" and parts[1] in LAST


def _turn(path: str) -> tuple[int, str]:
    parts = PurePosixPath(path).parts
    return (1 + LAST.index(parts[1]) if _in_order(path) else 0, path)
