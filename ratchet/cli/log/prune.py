"""`ratchet log prune`: what the bound of the logs would remove, or, with the fleet down, its removal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ratchet.cli.terminal.errors import CommandError
from ratchet.logs.leadership import UNFENCED, Fence, Leadership
from ratchet.logs.retention.contents import newest_time
from ratchet.logs.retention.needs import needs
from ratchet.logs.retention.plan import Bound
from ratchet.logs.retention.pruner import Pruned, Pruner


def prune(logs_dir: Path, index_dir: Path, adapters_dir: Path, bound: Bound, *, dry: bool) -> Pruned:
    """Ages are counted from the newest line, should the clock be ahead of it.

    Raises CommandError where an orchestrator works, unless `dry`; JournalError, RegistryError, DiskFull.
    """
    with _leading(logs_dir, dry=dry) as fence:
        now = datetime.now(UTC)
        present = min(now, newest_time(logs_dir) or now)
        return Pruner(logs_dir, bound, fence).prune(needs(index_dir, adapters_dir), present, dry=dry)


def as_dict(pruned: Pruned, *, dry: bool) -> dict[str, Any]:
    return {
        "dry_run": dry,
        "removed": [
            {
                "file": part.segment.path.name,
                "bytes": part.disk_bytes,
                "from": part.first_at.isoformat(),
                "to": part.last_at.isoformat(),
            }
            for part in pruned.removed
        ],
        "held": pruned.held and {"file": pruned.held.part.segment.path.name, "why": pruned.held.why},
        "bytes_left": pruned.disk_bytes,
    }


def sentences(pruned: Pruned, *, dry: bool) -> Iterator[str]:
    done = "would go" if dry else "gone"
    for part in pruned.removed:
        lines = f"lines of {part.first_at:%F %R} to {part.last_at:%F %R}"
        yield f"{done}: {part.segment.path.name} ({part.disk_bytes / 1e6:,.1f} MB, {lines})"
    if pruned.held is not None:
        yield f"stays: {pruned.held.part.segment.path.name} and what came after it: {pruned.held.why}"
    if not pruned.removed:
        yield "nothing to remove" if pruned.held is None else "nothing can be removed"
    yield f"{'would be left' if dry else 'left'}: {pruned.disk_bytes / 1e6:,.1f} MB of logs"


@contextmanager
def _leading(logs_dir: Path, *, dry: bool) -> Iterator[Fence]:
    if dry:
        yield UNFENCED
        return
    leadership = Leadership(logs_dir)
    if not leadership.try_lead():
        raise CommandError(
            f"the orchestrator of {leadership.holder()} keeps {logs_dir} within its bound by itself, twice a minute. "
            f"To have it remove more, lower RATCHET_LOG_KEEP_GB or RATCHET_LOG_KEEP_DAYS and restart it; --dry-run "
            f"only looks"
        )
    try:
        yield leadership
    finally:
        leadership.release()
