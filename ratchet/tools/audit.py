"""The audit of the tools: a line for each call that begins, one for how it ended, and one for each refusal, chained.

The lines and the chain are those of the API's audit (ratchet/http/access/audit.py). Beyond it an anchor, a small file
that lies elsewhere and says what the newest line was: by it `verify` finds lines cut off at the end as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.files.atomic_file import replace_file
from ratchet.http.access.audit import NAME, AuditLog, read_audit
from ratchet.logs.names import active_path
from ratchet.service.errors import JournalError

SERVICE = "tools"


def audit_folder(root: Path) -> Path:
    """The folder in which the audit of a workspace lies unless another folder is named: not in the workspace."""
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    return Path.home() / ".local" / "state" / "ratchet" / "tools" / name


class ToolAudit:
    """Written to `folder`/tools. One process has it at a time; a second one writes a folder beside it."""

    def __init__(self, folder: Path, anchor: Path | None = None) -> None:
        self._log = AuditLog(folder, SERVICE)
        self._anchor = anchor
        self.places = (folder, *([anchor] if anchor else []))
        """The folders that it writes to."""

    async def record(self, entry: Mapping[str, Any]) -> int:
        """The line's number, once it is on disk. Raises DiskFull and JournalError."""
        number = await self._log.record({name: _plain(value) for name, value in entry.items()})
        if self._anchor is not None and (head := self._log.head) is not None:
            head_says = {"sequence": head.sequence, "sha256": head.sha256, "audit": str(self._log.folder)}
            replace_file(self._anchor, json.dumps(head_says).encode() + b"\n", mode=0o600)
        return number

    async def close(self) -> None:
        await self._log.close()


def _plain(value: Any) -> Any:
    """Text that can be written as UTF-8."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def verify(folder: Path, anchor: Path | None = None) -> dict[str, Any]:
    """Check one process's folder; return how many lines there are, and the sha256 of the last.

    Raises JournalError naming the first line that was edited, removed or put in, or saying that lines are missing at
    the beginning or, where there is an anchor, at the end.
    """
    lines, last, sequence = 0, "", 0
    anchored = _read_anchor(anchor) if anchor else None
    for line, fields in read_audit(folder):
        if lines == 0 and line.position == 0 and fields["sequence"] != 1:
            raise JournalError(f"lines were removed from the beginning of {active_path(folder, NAME)}")
        lines, last, sequence = lines + 1, fields["sha256"], fields["sequence"]
        if anchored and sequence == anchored["sequence"] and last != anchored["sha256"]:
            raise JournalError(f"line {sequence} of {active_path(folder, NAME)} is another than {anchor} says")
    if anchored and sequence < anchored["sequence"]:
        raise JournalError(
            f"lines were cut off at the end of {active_path(folder, NAME)}: it ends with {sequence:,}, and {anchor} "
            f"knows {anchored['sequence']:,}"
        )
    return {"audit": folder.name, "lines": lines, "sha256": last, "anchored": anchored is not None}


def _read_anchor(anchor: Path) -> dict[str, Any]:
    try:
        read = json.loads(anchor.read_text(encoding="utf-8"))
        return {"sequence": int(read["sequence"]), "sha256": str(read["sha256"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JournalError(f"the anchor {anchor} can't be read: {error}") from None
