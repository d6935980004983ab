"""The audit of a rollout's tools, kept by the recorder: lines that are chained, outside of the sandbox.

The tools say what they begin, refuse and end, before it is done (ratchet/tools/recorded.py). The program can't change a
line once it is here. It can leave one out, or make one up: what it does without our tools is not in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from ratchet.files.hash_chain import Link, chain_line, follow
from ratchet.rollouts.kept_steps import Audited, KeptSteps
from ratchet.service.errors import JournalError
from schemas.messages.response import ToolAudit
from workbench.tools.names import TOOL_NAMES

MOST_ENTRY = 16 * 1024
"""Bytes of an entry."""
MOST_LINES = 64 * 1024
"""Bytes of lines that leave with the rollout; those after them are counted, and chained."""
MOST_NAMED = 200
"""Paths that the summary names, and again commits. The others are in the lines alone."""
MOST_NAMED_BYTES = 64 * 1024
"""Bytes of the paths that the summary names, and again of the commits."""
MOST_NAME = 100
"""Characters of a tool's name. A model may call a tool that does not exist, and its refusal names that."""
MOST_COMMIT = 64
"""Characters of a commit's name: a sha256 in hex."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    event: Literal["called", "refused", "ended", "changed"]
    tool: Annotated[str, msgspec.Meta(max_length=MOST_NAME)]
    arguments: dict[str, Any] | None = None
    given: dict[str, Any] | None = None
    answer: dict[str, Any] | None = None
    call: int | None = None
    how: str | None = None
    kind: str | None = None
    why: str | None = None
    wall_s: float | None = None
    paths: list[str] = []
    commit: Annotated[str, msgspec.Meta(max_length=MOST_COMMIT)] | None = None


_decoder = msgspec.json.Decoder(_Entry)


class ToolChain:
    """Goes on from the lines that are among the steps, and writes each line there."""

    def __init__(self, steps: KeptSteps | None) -> None:
        self._steps = steps
        self._last = Link()
        self._lines: list[str] = []
        self._bytes = 0
        self._operations: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._named: dict[str, dict[str, None]] = {"paths": {}, "commits": {}}
        self._named_bytes: Counter[str] = Counter()
        for line in steps.audited if steps is not None else ():
            self._last, fields = follow(None, line.encode())
            self._take_up(line, fields)

    def record(self, entry: bytes) -> int:
        """Return the line's number. Raises msgspec.DecodeError for what is no entry, or of a tool that is not ours."""
        decoded = _decoder.decode(entry)
        if decoded.event != "refused" and decoded.tool not in TOOL_NAMES:
            raise msgspec.ValidationError(f"there is no tool {decoded.tool!r}")
        said = msgspec.to_builtins(decoded)
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._last, raw = chain_line(self._last, {**said, "at": at})
        line = raw.decode()
        self._take_up(line, said)
        if self._steps is not None:
            self._steps.add(Audited(line))
        return self._last.sequence

    def _take_up(self, line: str, fields: dict[str, Any]) -> None:
        match fields["event"]:
            case "called":
                self._operations[fields["tool"]] += 1
            case "refused":
                self._counts["refused"] += 1
            case "ended" if fields.get("how") != "answered":
                self._counts["failed"] += 1
        self._name("paths", fields.get("paths") or ())
        self._name("commits", (fields["commit"],) if fields.get("commit") else ())
        self._bytes += len(line.encode())
        if self._bytes <= MOST_LINES:
            self._lines.append(line)

    def _name(self, what: str, names: Sequence[str]) -> None:
        named = self._named[what]
        for name in names:
            size = self._named_bytes[what] + len(name.encode())
            if name not in named and len(named) < MOST_NAMED and size <= MOST_NAMED_BYTES:
                named[name] = None
                self._named_bytes[what] = size

    def summary(self) -> ToolAudit | None:
        """Return what the tools did, with the lines; None where none was called."""
        if not self._last.sequence:
            return None
        return ToolAudit(
            operations=dict(self._operations),
            failed=self._counts["failed"],
            refused=self._counts["refused"],
            changed=tuple(sorted(self._named["paths"])),
            commits=tuple(self._named["commits"]),
            count=self._last.sequence,
            sha256=self._last.sha256,
            lines=tuple(self._lines),
        )


def verify_lines(lines: Sequence[str], count: int, sha256: str) -> None:
    """Check the lines of a rollout, from the first on. Raises JournalError that names the first that was touched."""
    link = Link()
    for number, line in enumerate(lines, start=1):
        try:
            link, _ = follow(link, line.encode())
        except ValueError as error:
            raise JournalError(f"line {number} of the audit was changed after it was written: {error}") from None
    kept = sum(len(line.encode()) for line in lines)
    has_room = kept + 2 * MOST_ENTRY < MOST_LINES  # a line that was too long for the room is no longer than this
    if link.sequence == count and link.sha256 == sha256:
        return
    if link.sequence >= count or has_room:
        raise JournalError(f"the audit ends with line {link.sequence}, and another was its last: {count}, {sha256}")
