"""Files of the workspace: 14 operations. Every path goes through `Tree`; what is git's own is only read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from workbench.tools import patch as patches
from workbench.tools.globs import compile_pattern, matcher
from workbench.tools.operation import Answer, Count, Effect, Subject, Text, ToolError, WorkspacePath
from workbench.tools.tree import Entry, Tree, is_git, require_not_git
from workbench.tools.workshop import Workshop

FILES = Subject("files")

READ_BYTES = 64_000
LINE_CHARACTERS = 2000
DEPTH = 12
SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv"})
"""Folders that tree, search and find skip unless they begin in one."""
Pattern = Annotated[str, Field(min_length=1, max_length=4096)]


@FILES.operation(Effect.READS)
async def file_read(
    at: Workshop,
    path: WorkspacePath,
    max_bytes: Annotated[int, Field(ge=1, le=1_000_000, description="Of the text from its beginning.")] = READ_BYTES,
) -> Answer:
    """Read a text file. Use file_read_lines for a part of a long one."""
    raw = await at.look(at.tree.read, path, at.policy.limits.file_bytes)
    text = _text(raw, path)
    part = raw[:max_bytes].decode("utf-8", "ignore")
    return {"path": path, "bytes": len(raw), "sha256": _sum(raw), "text": part, "whole": len(part) == len(text)}


@FILES.operation(Effect.READS)
async def file_read_lines(at: Workshop, path: WorkspacePath, first: Count = 1, last: Count = 200) -> Answer:
    """Read lines `first` to `last` of a text file, both counted from 1 and included; the answer has their numbers."""
    if last < first:
        raise ToolError("arguments", f"last ({last}) comes before first ({first})")
    lines = _text(await at.look(at.tree.read, path, at.policy.limits.file_bytes), path).splitlines()
    if first > max(1, len(lines)):
        raise ToolError("arguments", f"{path} has {len(lines)} lines: there is no line {first}")
    shown = [f"{number}: {line[:LINE_CHARACTERS]}" for number, line in enumerate(lines[first - 1 : last], first)]
    return {"path": path, "lines": len(lines), "text": "\n".join(shown)}


@FILES.operation(Effect.READS)
async def file_list(at: Workshop, path: WorkspacePath = ".") -> Answer:
    """List a folder: names, kinds and sizes (bytes)."""
    entries = await at.look(at.tree.entries, path)
    if len(entries) > at.policy.limits.entries:
        raise ToolError("limit", f"{path} has {len(entries):,} entries: use file_find with a glob")
    return {"path": path, "entries": [_entry_fields(entry) for entry in entries]}


@FILES.operation(Effect.READS)
async def file_tree(
    at: Workshop, path: WorkspacePath = ".", depth: Annotated[int, Field(ge=1, le=DEPTH)] = 3
) -> Answer:
    """Show folders and files below a folder, indented, `depth` levels deep. Leaves out .git and installed packages."""

    def draw_tree() -> list[str]:
        lines = list[str]()
        for entry in sorted(at.tree.walk(path, at.policy.limits.entries, SKIPPED), key=lambda one: one.path.split("/")):
            level = _level(entry.path, at.tree.clean(path))
            if level < depth:
                lines.append("  " * level + entry.path.rpartition("/")[2] + ("/" if entry.kind == "folder" else ""))
        return lines

    lines = await at.look(draw_tree)
    return {"path": path, "entries": len(lines), "text": "\n".join(lines)}


@FILES.operation(Effect.READS)
async def file_search(
    at: Workshop,
    pattern: Pattern,
    path: WorkspacePath = ".",
    glob: Annotated[str, Field(min_length=1, max_length=300, description="Of the files, such as **/*.py.")] = "*",
    regex: Annotated[bool, Field(description="The pattern is RE2's; otherwise it is text.")] = False,
    ignore_case: bool = False,
    max_results: Annotated[int, Field(ge=1, le=1000)] = 100,
) -> Answer:
    """Search lines of text files for a text, or for an RE2 regular expression with `regex`."""
    wanted, found = compile_pattern(pattern, literal=not regex, ignore_case=ignore_case), matcher(glob)

    def search_files() -> tuple[list[dict[str, Any]], int, bool]:
        hits: list[dict[str, Any]] = []
        files, room = 0, at.policy.limits.tree_bytes
        for entry in _files(at.tree, path, at.policy.limits.entries):
            if entry.size > at.policy.limits.file_bytes or not found(entry.path):
                continue
            if (room := room - entry.size) < 0:
                raise ToolError("limit", f"there is too much to search below {path}: name a folder in it, or a glob")
            try:
                text = at.tree.read(entry.path, at.policy.limits.file_bytes).decode()
            except (ToolError, UnicodeDecodeError):
                continue
            files += 1
            for number, line in enumerate(text.splitlines(), 1):
                if wanted.search(line):
                    if len(hits) == max_results:
                        return hits, files, True
                    hits.append({"path": entry.path, "line": number, "text": line[:300]})
        return hits, files, False

    hits, files, more = await at.look(search_files)
    return {"hits": hits, "files_searched": files, "more": more}


@FILES.operation(Effect.READS)
async def file_find(
    at: Workshop,
    glob: Annotated[str, Field(min_length=1, max_length=300, description="Such as *.py, or src/**/test_*.py.")],
    path: WorkspacePath = ".",
    max_results: Annotated[int, Field(ge=1, le=2000)] = 200,
) -> Answer:
    """Find files by a glob: of their names, or of their whole paths where it has a slash."""
    fits = matcher(glob)

    def find_paths() -> list[str]:
        return [entry.path for entry in _files(at.tree, path, at.policy.limits.entries) if fits(entry.path)]

    paths = await at.look(find_paths)
    return {"paths": paths[:max_results], "more": len(paths) > max_results}


@FILES.operation(Effect.READS)
async def file_stat(at: Workshop, path: WorkspacePath) -> Answer:
    """Say what a path is: kind, size (bytes), mode, time of change; of a file its sha256, of a link its target."""
    entry = await at.look(at.tree.stat, path)
    answer = {**_entry_fields(entry), "mode": f"{entry.mode:04o}", "modified": round(entry.modified, 3)}
    if entry.kind == "file" and entry.size <= at.policy.limits.file_bytes:
        answer["sha256"] = _sum(await at.look(at.tree.read, path, at.policy.limits.file_bytes))
    if entry.kind == "link":
        answer["target"] = await at.look(at.tree.link, path)
    return answer


@FILES.operation(Effect.WRITES, private=("content",))
async def file_write(
    at: Workshop,
    path: WorkspacePath,
    content: Text,
    if_sha256: Annotated[
        str | None, Field(description="Only where the file still has this sha256; `absent` where there is none.")
    ] = None,
) -> Answer:
    """Write a whole file, making folders as needed; what it had is replaced, all at once."""
    raw = _bytes(content, path, at.policy.limits.file_bytes)

    def write() -> None:
        if if_sha256 is not None and if_sha256 != (now := _now(at, path)):
            raise ToolError("conflict", f"{path} has changed (it is {now}): read it again before you write it")
        at.tree.make_folder_of(path)
        at.tree.write(path, raw)

    await at.change(write)
    return {"path": path, "bytes": len(raw), "sha256": _sum(raw)}


@FILES.operation(Effect.WRITES, private=("content",))
async def file_append(at: Workshop, path: WorkspacePath, content: Text) -> Answer:
    """Add text at the end of a file that is there."""
    raw = _bytes(content, path, at.policy.limits.file_bytes)
    return {"path": path, "bytes": await at.change(at.tree.append, path, raw, at.policy.limits.file_bytes)}


@FILES.operation(Effect.WRITES, private=("old", "new"))
async def file_replace(
    at: Workshop,
    path: WorkspacePath,
    old: Annotated[Text, Field(min_length=1, description="Exactly as it stands in the file, and there only once.")],
    new: Text,
) -> Answer:
    """Replace one text in a file by another. The old one must be there exactly once: give enough lines around it."""
    require_not_git(path)

    def replace_text() -> int:
        text = _text(at.tree.read(path, at.policy.limits.file_bytes), path)
        if (count := text.count(old)) != 1:
            why = (
                "is not there; read the file, white space counts"
                if count == 0
                else f"is there {count} times: give more"
            )
            raise ToolError("conflict", f"{path}: the old text {why}")
        at.tree.write(path, _bytes(text.replace(old, new), path, at.policy.limits.file_bytes))
        return text[: text.index(old)].count("\n") + 1

    return {"path": path, "line": await at.change(replace_text)}


@FILES.operation(Effect.WRITES, private=("patch",))
async def file_patch(
    at: Workshop, patch: Annotated[Text, Field(min_length=1, description="A unified diff of one or more files.")]
) -> Answer:
    """Apply a unified diff (`--- a/file`, `+++ b/file`, `@@ … @@`). If one hunk does not fit, no file is changed."""
    files, most = patches.parse(patch), at.policy.limits.file_bytes
    for one in files:
        for name in (one.before, one.after):
            if name is not None:
                require_not_git(name)

    def apply_patch() -> list[str]:
        after: dict[str, bytes | None] = {}
        for one in files:
            name = one.before or one.after
            if name is None:
                raise ToolError("arguments", "a file of the patch is /dev/null on both sides")
            old = after[name] if name in after else _content(at.tree, name, most)
            if (old is None) != (one.before is None):
                raise ToolError("conflict", f"{name} {'is not there' if old is None else 'is there already'}")
            text = patches.apply_to_text(_text(old or b"", name), one)
            if one.after is None and text:
                raise ToolError("conflict", f"{name} would be removed, but has more in it than the patch says")
            after[name] = None
            if one.after is not None:
                if one.after not in (name, *after) and at.tree.find(one.after):
                    raise ToolError("conflict", f"{one.after} is there already")
                after[one.after] = _bytes(text, one.after, most)
        for name, content in after.items():
            if content is None:
                at.tree.remove(name)
            else:
                at.tree.make_folder_of(name)
                at.tree.write(name, content)
        return list(after)

    return {"changed": await at.change(apply_patch)}


@FILES.operation(Effect.WRITES)
async def file_move(at: Workshop, source: WorkspacePath, target: WorkspacePath) -> Answer:
    """Move or rename a file or a folder, to a name that is not taken."""
    require_not_git(source, target)

    def move() -> None:
        at.tree.make_folder_of(target)
        at.tree.move(source, target)

    await at.change(move)
    return {"source": source, "target": target}


@FILES.operation(Effect.DESTROYS)
async def file_remove(
    at: Workshop,
    path: WorkspacePath,
    recursive: Annotated[bool, Field(description="A folder with all that is in it.")] = False,
) -> Answer:
    """Remove a file, a link itself, or an empty folder; with `recursive` a folder and what is in it."""
    require_not_git(path)

    def remove() -> int:
        count = 1
        if recursive and at.tree.stat(path).kind == "folder":
            below = list(at.tree.walk(path, at.policy.limits.entries))
            if any(is_git(entry.path) for entry in below):
                raise ToolError("policy", f"{path} has a git repository in it, which is not removed")
            for entry in reversed(below):
                at.tree.remove(entry.path)
            count += len(below)
        at.tree.remove(path)
        return count

    return {"path": path, "removed": await at.change(remove)}


@FILES.operation(Effect.WRITES)
async def file_make_folder(at: Workshop, path: WorkspacePath) -> Answer:
    """Make a folder, and those above it as needed."""
    require_not_git(path)
    return {"path": path, "made": await at.change(at.tree.make_folder, path)}


def _text(raw: bytes, path: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ToolError("arguments", f"{path} is no text in UTF-8 ({len(raw):,} bytes); file_stat says more") from None


def _bytes(content: str, path: str, most: int) -> bytes:
    """Bytes of a text that is to be written to the path. Raises ToolError where that may not be."""
    require_not_git(path)
    try:
        raw = content.encode()
    except UnicodeEncodeError:
        raise ToolError("arguments", "the text has half a surrogate pair in it: it is no Unicode") from None
    if len(raw) > most:
        raise ToolError("limit", f"that is {len(raw):,} bytes, more than {most:,}")
    return raw


def _sum(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _now(at: Workshop, path: str) -> str:
    content = _content(at.tree, path, at.policy.limits.file_bytes)
    return "absent" if content is None else _sum(content)


def _content(tree: Tree, path: str, most: int) -> bytes | None:
    return tree.read(path, most) if tree.find(path) else None


def _files(tree: Tree, path: str, most: int) -> Iterator[Entry]:
    entry = tree.stat(path)
    if entry.kind == "file":
        yield entry
        return
    yield from (one for one in tree.walk(path, most, SKIPPED) if one.kind == "file")


def _entry_fields(entry: Entry) -> dict[str, Any]:
    return {"path": entry.path, "kind": entry.kind, **({"bytes": entry.size} if entry.kind == "file" else {})}


def _level(path: str, base: str) -> int:
    return path.count("/") - (0 if base == "." else base.count("/") + 1)
