"""`ratchet audit`: who changed what over the API, who was refused, and whether the record of it was touched.

Reads every line, so that nothing is shown that was touched.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Annotated, Any

import typer

from ratchet.files.hash_chain import NOTHING_BEFORE
from ratchet.http.access.audit import NAME, read_audit
from ratchet.logs.names import active_path
from ratchet.service.settings import FleetSettings
from services.cli.terminal import AsJson, UsageError, out, print_json

audit = typer.Typer()

Folder = Annotated[
    Path | None, typer.Option("--dir", help="Folder of the audit; that of the settings (logs/audit) if not named.")
]


@audit.command()
def verify(folder: Folder = None, json: AsJson = False) -> None:
    """Check every line of every service's audit against the one before; exit code 1 names the first that was touched.

    That the newest lines were cut off no chain can tell: compare the last sha256 with the one you noted, or with the
    line `audit-opened` of the service's log.
    """
    found = [verify_folder(one) for one in audits_in(folder or FleetSettings.read().audit_dir)]
    if json:
        print_json(found)
        return
    for one in found:
        out.print(f"{one['audit']}: {one['lines']} lines, whole; the last has sha256 {one['sha256']}", markup=False)


@audit.command()
def show(
    count: Annotated[int, typer.Option("-n", min=1, help="So many of the newest lines.")] = 20,
    who: Annotated[str | None, typer.Option(help="Only of this caller.")] = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show the newest lines of all services, the oldest first; checked as in verify."""
    lines = newest(folder or FleetSettings.read().audit_dir, count, who)
    if json:
        print_json(lines)
        return
    for line in lines:
        out.print(sentence(line), markup=False)


def audits_in(folder: Path) -> list[Path]:
    """One folder for each process that wrote. Raises UsageError if there is none."""
    found = sorted(path.parent for path in folder.glob(f"*/{active_path(Path(), NAME).name}"))
    if not found:
        raise UsageError(
            f"there is no audit in {folder}: nothing was changed or refused over the API yet, or --dir names another"
        )
    return found


def verify_folder(folder: Path) -> dict[str, Any]:
    """Raises JournalError naming the first line that was touched."""
    lines, last = 0, NOTHING_BEFORE
    for _, fields in read_audit(folder):
        lines, last = lines + 1, fields["sha256"]
    return {"audit": folder.name, "lines": lines, "sha256": last}


def newest(folder: Path, count: int, who: str | None) -> list[dict[str, Any]]:
    """Return the newest entries of all processes, the oldest first. Raises as `verified` and `audits_in` do."""
    lines: list[dict[str, Any]] = []
    for one in audits_in(folder):
        kept = (fields for _, fields in read_audit(one) if who in (None, fields.get("who")))
        lines += deque(kept, maxlen=count)
    return sorted(lines, key=lambda fields: str(fields.get("at")))[-count:]


def sentence(line: dict[str, Any]) -> str:
    """One line of the audit on one line of a terminal."""
    who = line.get("who") or line.get("from") or "somebody"
    times = f", {line['times']} times more" if "times" in line else ""
    about = " ".join(f"{name}={value}" for name, value in (line.get("concerns") or {}).items())
    route = f"{line.get('method', '')} {line.get('path', '')}".strip()
    status = line.get("status", "")
    return f"{line['at']}  {line['service']:<12} {line['event']:<13} {who}  {route} {about} {status}{times}".rstrip()
