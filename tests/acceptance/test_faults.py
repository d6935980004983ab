"""Nothing is lost, doubled or told two ways, whatever fails at which step. At length: `python -m bench.faults`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.faults.rig import Rig, running_rig
from bench.faults.steps import STEPS
from bench.faults.strikes import hostile
from bench.faults.table import FAULTS, Fault, Row, strike
from services.cli.fleet.local_broker import server_folder
from tests.acceptance.brokers import mortal_broker
from tests.disks import MayNotMount, run_where_mounting_is_allowed

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(server_folder() is None, reason="kills its broker, so it needs a private RabbitMQ node"),
]

TASKS_PER_S = 25
AT = {step.name: step for step in STEPS}
ROWS = {fault.name: fault._replace(lasts_s=(0.2, 0.6)) for fault in FAULTS} | {
    "hostile": Fault("hostile", "fewer of them", hostile(120))
}
SHORT_TABLE = [
    *(("kill", step.name) for step in STEPS),
    ("halt", "settlement"),
    ("enospc-logs", "admission"),
    ("enospc-index", "settlement"),
    ("enospc-dead-letters", "scoring"),
    ("enospc-adapters", "promotion"),
    ("eio", "settlement"),
    ("estale", "admission"),
    ("erofs", "telling"),
    ("read-only", "settlement"),
    ("partition", "scoring"),
    ("cut", "generation"),
    ("memory-alarm", "admission"),
    ("clock+day", "settlement"),
    ("clock-day", "scoring"),
    ("clock-day", "generation"),
    ("clock+year", "generation"),
    ("clock-year", "admission"),
    ("duplicates", "scoring"),
    ("reorder", "settlement"),
    ("kill-broker", "telling"),
    ("hostile", "generation"),
]


@pytest.mark.timeout(420)
async def test_no_fault_at_no_step_loses_or_doubles_a_task(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    rows = {name: Row(name) for name, _ in SHORT_TABLE}
    try:
        rig = await struck(tmp_path, rows)
    except MayNotMount:
        run_where_mounting_is_allowed(request.node.nodeid)
        return

    assert not rig.complaints, "\n".join(rig.complaints)
    assert rows.keys() == {fault.name for fault in FAULTS} - {"halt-leader"}  # test_standby.py
    assert [name for name, row in rows.items() if not row.strikes] == []
    assert len(rig.user.ledger.answers) > 500


async def struck(folder: Path, rows: Mapping[str, Row]) -> Rig:
    """The fleet that all rows shared, once it is at rest. Raises MayNotMount."""
    (folder / "short").mkdir()
    with mortal_broker(folder / "broker") as broker:
        async with running_rig(broker, folder / "short", seed=12, tasks_per_s=TASKS_PER_S, hurried=0) as rig:
            for name, step in SHORT_TABLE:
                await strike(rig, ROWS[name], AT[step], rows[name])
    return rig
