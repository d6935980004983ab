"""Unified diffs, applied to texts. Pure: who reads and writes the files is in files.py.

A hunk is put where its lines are exactly as it says, nearest to where it says; nothing is matched by guessing.
"""

from __future__ import annotations

import io
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate

import re2

from workbench.tools.operation import ToolError

HEADER = re2.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
NOTHING = "/dev/null"
MOST_SEARCHED = 1 << 28
"""Characters gone through for hunks that are not where they say."""


@dataclass(slots=True)
class Hunk:
    """`old` and `new` are lines with their ends; `at` is the line, from 1 on, that the first of `old` had."""

    at: int
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FilePatch:
    """`before` None: the file is made; `after` None: it is removed; two names: it is moved as well."""

    before: str | None
    after: str | None
    hunks: list[Hunk] = field(default_factory=list)


def parse(patch: str) -> list[FilePatch]:
    """Raises ToolError for what is no unified diff, or does more than change lines."""
    files: list[FilePatch] = []
    lines = _lines(patch)
    number = 0
    while number < len(lines):
        line = lines[number]
        if line.startswith(("GIT binary patch", "Binary files ")):
            raise ToolError("arguments", "binary patches are not applied: write the file with file_write")
        if line.startswith("--- ") and number + 1 < len(lines) and lines[number + 1].startswith("+++ "):
            files.append(FilePatch(_name(line), _name(lines[number + 1])))
            number += 2
        elif line.startswith("@@"):
            if not files:
                raise ToolError("arguments", "a hunk (@@ … @@) comes before any `--- a/file` and `+++ b/file`")
            number = _hunk(lines, number, files[-1])
        else:
            number += 1
    if not files or not all(one.hunks for one in files):
        raise ToolError("arguments", "that is no unified diff: it needs `--- a/file`, `+++ b/file` and hunks (@@ … @@)")
    return files


def _hunk(lines: list[str], number: int, file: FilePatch) -> int:
    found = HEADER.match(lines[number])
    if found is None:
        raise ToolError("arguments", f"line {number + 1} of the patch is no hunk header such as @@ -1,3 +1,4 @@")
    hunk, most, blank = Hunk(int(found[1])), int(found[2] or 1), 0
    number += 1
    last: tuple[list[str], ...] = ()
    while number < len(lines) and lines[number][:1] in (" ", "+", "-", "\\", "\n"):
        if lines[number].startswith("--- ") and number + 1 < len(lines) and lines[number + 1].startswith("+++ "):
            break
        mark, text = lines[number][:1], lines[number][1:]
        if mark == "\\":
            for one in last:
                one[-1] = one[-1].rstrip("\n")
        else:
            text = "\n" if mark == "\n" else text if text.endswith("\n") else f"{text}\n"
            last = {"+": (hunk.new,), "-": (hunk.old,)}.get(mark, (hunk.old, hunk.new))
            for one in last:
                one.append(text)
            blank = blank + 1 if mark == "\n" else 0
        number += 1
    for _ in range(min(blank, max(0, len(hunk.old) - most))):  # empty lines behind the patch
        hunk.old.pop()
        hunk.new.pop()
    file.hunks.append(hunk)
    return number


def _name(line: str) -> str | None:
    name = line[4:].rstrip("\n").partition("\t")[0].strip()
    if name == NOTHING:
        return None
    return name[2:] if name.startswith(("a/", "b/")) else name


def apply_to_text(text: str, file: FilePatch) -> str:
    """Raises ToolError saying which hunk does not fit, and what stands there."""
    lines, places, done, parts = _lines(text), _Places(text), 0, list[str]()
    for count, hunk in enumerate(file.hunks, 1):
        at = places.find(hunk, done)
        if at is None:
            near = "".join(lines[max(0, hunk.at - 1) :][: max(3, len(hunk.old))])
            raise ToolError(
                "conflict",
                f"hunk {count} of {file.after or file.before} does not fit: its lines are not in the file as it is. "
                f"Read it again; at line {hunk.at} stands: {near[:400]!r}",
            )
        parts += (*lines[done:at], *hunk.new)
        done = at + len(hunk.old)
    return "".join((*parts, *lines[done:]))


def _lines(text: str) -> list[str]:
    """Return the lines with their ends, which are line feeds alone."""
    return io.StringIO(text).readlines()


class _Places:
    """The places of lines in a text. A hunk is found in time linear in the text, and all of them together have a bound:
    `find` of a string takes linear time, and from the end it does in the reversed string."""

    def __init__(self, text: str) -> None:
        self._text = f"\n{text}"
        self._reversed = self._text[::-1]
        self._starts = [0, *accumulate(map(len, _lines(text)))]
        self._left = MOST_SEARCHED

    def find(self, hunk: Hunk, after: int) -> int | None:
        """The line nearest to where a hunk says it is, behind the hunk before. Raises ToolError."""
        starts, last = self._starts, len(self._starts) - 1
        expected = min(max(after, hunk.at - 1), last)
        if not hunk.old:
            return min(max(after, hunk.at), last)
        lines = f"\n{''.join(hunk.old)}"
        if not lines.endswith("\n"):  # the end of a file without a newline
            at = bisect_left(starts, len(self._text) - len(lines))
            return at if at >= after and self._text.endswith(lines) else None
        if self._text.startswith(lines, starts[expected]):
            return expected
        self._left -= len(self._text) - starts[after]
        if self._left < 0:
            raise ToolError("limit", "too many hunks are not at the lines that they name: correct their numbers")
        behind = self._text.find(lines, starts[expected])
        end = len(self._text) - len(lines)
        before = self._reversed.find(lines[::-1], end - starts[expected], len(self._text) - starts[after])
        found = [bisect_left(starts, one) for one in ([end - before] if before >= 0 else []) + [behind] if one >= 0]
        return min(found, key=lambda at: abs(at - expected), default=None)
