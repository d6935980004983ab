"""The changes of a tree, as a patch; and a tree with a patch. Pure: what git is asked, and what it means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from workbench.sandbox.job import Result, TreeFile
from workbench.trees import Tree, printable
from workbench.workspaces.errors import PatchRefused
from workbench.workspaces.git_jobs import Change

MADE_BY_TOOLS = frozenset(
    ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", "node_modules")
)
"""Folders that are no part of a patch unless the workspace has them."""
GITS_OWN = re.compile(r"(\.git|git~1)[ .]*(:.*)?", re.IGNORECASE | re.DOTALL)
"""Names that some file system takes for .git: git applies no patch with a file of that name."""
BETWEEN_NAMES = re.compile(r"[/\\]")
"""Separators of names for git, which takes both for a slash there."""
EVERYTHING = "."
MOST_TOLD, MOST_CHARS = 100, 300
"""Reasons that an artifact has, and characters of a path there: a program makes as many and as long as it likes."""
PER_FILE = 1024
"""Bytes of a patch for each file beside its lines, with its path."""


@dataclass(frozen=True, slots=True)
class Changes:
    """`left_out` has a reason for each path that changed, or may have, and is not among the changes."""

    changed: Sequence[Change]
    left_out: Mapping[str, str] = field(default_factory=dict)


def changes(before: Tree, after: Mapping[str, TreeFile], left_out: Mapping[str, str]) -> Changes:
    """`left_out`: paths of which it is not known what they are now; they are taken to be as they were."""
    changed, told = list[Change](), {printable(path): why for path, why in left_out.items()}
    for path in sorted({*before.files, *after}):
        was, now = before.files.get(path), after.get(path)
        if was == now:
            continue
        if now is None:
            if not (EVERYTHING in left_out or any(above in left_out for above in _with_folders(path))):
                changed.append((path, was, None))
        elif was is None and (folder := _made_by_tool(path, before)):
            told[printable(folder)] = "made by a tool"
        elif now.is_link:
            told[printable(path)] = "it is a link"
        elif was is None and any(map(GITS_OWN.fullmatch, BETWEEN_NAMES.split(path))):
            told[printable(path)] = "git takes its name for .git"
        else:
            changed.append((path, was, now))
    return Changes(changed, told)


def _with_folders(path: str) -> Iterator[str]:
    yield path
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _made_by_tool(path: str, before: Tree) -> str | None:
    """The folder, where no file of the workspace is in one of that place."""
    found, at = None, ""
    for part in path.split("/")[:-1]:
        at = f"{at}/{part}" if at else part
        if part in MADE_BY_TOOLS:
            found = at
            break
    if found is None or any(known.startswith(f"{found}/") for known in before.files):
        return None
    return found


def that_fit(changed: Sequence[Change], most: int) -> Changes:
    """Return as many changes as surely give a patch of at most so many bytes, small ones first."""
    room, kept, left_out = most, set[str](), dict[str, str]()
    for path, was, now in sorted(changed, key=_size):
        room -= _size((path, was, now))
        if room >= 0:
            kept.add(path)
        else:
            left_out[printable(path)] = f"the patch would have more than {most:,} bytes"
    return Changes([change for change in changed if change[0] in kept], left_out)


def _size(change: Change) -> int:
    """Return the most bytes of a patch: each line may be one character, and get another; bytes become base 85."""
    path, was, now = change
    return 2 * sum(len(file.content) for file in (was, now) if file is not None) + PER_FILE + 8 * len(path)


def collect_files(
    wanted: Sequence[str], after: Mapping[str, TreeFile], left_out: Mapping[str, str], most: int
) -> tuple[dict[str, str], dict[str, str]]:
    """Files that were wanted whole, of at most so many bytes together, and why others are not among them."""
    files, reasons, room = dict[str, str](), dict[str, str](), most
    for path in dict.fromkeys(wanted):
        file = after.get(path)
        if file is None or file.is_link:
            reasons[path] = "it is a link" if file else left_out.get(path, "not there")
            continue
        if len(file.content) > room:
            reasons[path] = f"with it there would be more than {most:,} bytes"
            continue
        try:
            files[path] = bytes(file.content).decode()
            room -= len(file.content)
        except UnicodeDecodeError:
            reasons[path] = "it is no text in UTF-8"
    return files, reasons


def shorten_reasons(left_out: Mapping[str, str]) -> dict[str, str]:
    """Return what is said of the whole, and of the first paths; of the rest how many they are."""
    first = sorted(left_out, key=lambda path: path != EVERYTHING)[:MOST_TOLD]
    kept = {path if len(path) <= MOST_CHARS else f"{path[:MOST_CHARS]}…": left_out[path] for path in first}
    return kept if len(first) == len(left_out) else {**kept, "…": f"{len(left_out) - len(first):,} more"}


def tree_after(before: Tree, result: Result) -> Tree:
    """Return what a job that applied a patch left. Raises PatchRefused."""
    if not result.succeeded:
        said = result.stderr.decode(errors="replace").strip().splitlines()
        raise PatchRefused(_one_line(f"the patch does not apply: {' / '.join(said[:3]) or result.says}"))
    if result.left_out:
        path, why = next(iter(result.left_out.items()))
        raise PatchRefused(_one_line(f"the patch does not leave a workspace: {printable(path)}: {why}"))
    for path, file in result.tree.items():
        if file.is_link and before.files.get(path) != file:
            raise PatchRefused(_one_line(f"the patch makes a link: {printable(path)}"))
    return Tree(result.tree)


def _one_line(text: str) -> str:
    """The beginning of a text that quotes what somebody else wrote, with a blank for all that can't be printed."""
    return "".join(char if char.isprintable() else " " for char in text[:300])
