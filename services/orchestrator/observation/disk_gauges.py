"""Room on the disks the fleet writes to, on /metrics. On a full disk it stops: nothing is acked that is not on disk."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

from prometheus_client import Gauge

free_bytes = Gauge("ratchet_disk_free_bytes", "Bytes free where a folder lies: logs, adapters.", ["folder"])
size_bytes = Gauge("ratchet_disk_size_bytes", "Size in bytes of the disk a folder lies on.", ["folder"])


class DiskGauges:
    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders

    async def refresh(self) -> None:
        """Raises OSError for a folder that is gone."""
        for name, folder in self._folders.items():
            usage = await asyncio.to_thread(shutil.disk_usage, folder)
            free_bytes.labels(name).set(usage.free)
            size_bytes.labels(name).set(usage.total)
