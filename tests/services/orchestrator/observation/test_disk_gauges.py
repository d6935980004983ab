"""Room on the disks, on the metrics."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from services.orchestrator.observation.gauges import DiskGauges


async def test_room_and_size_of_each_folders_disk_are_on_the_metrics(tmp_path: Path) -> None:
    await DiskGauges({"logs": tmp_path}).refresh()

    free = REGISTRY.get_sample_value("ratchet_disk_free_bytes", {"folder": "logs"})
    size = REGISTRY.get_sample_value("ratchet_disk_size_bytes", {"folder": "logs"})

    assert size == shutil.disk_usage(tmp_path).total
    assert free is not None and 0 < free <= size


async def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        await DiskGauges({"adapters": tmp_path / "gone"}).refresh()
