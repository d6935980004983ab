"""Nothing is lost and nothing is logged twice, wherever a process is killed. At length: `python -m bench.faults`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.cli.fleet.local_broker import server_folder
from tests.acceptance.brokers import mortal_broker
from tests.acceptance.faults import STEPS_OF, Restarter, every_step, under_fire
from tests.acceptance.fleet import Fleet
from tests.acceptance.user import User

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(server_folder() is None, reason="kills its broker, so it needs a private RabbitMQ node"),
]

TASKS_PER_S = 60
DIE_WITHIN_S = 150
REST_S = 120


@pytest.mark.timeout(420)
async def test_a_kill_at_every_step_and_of_the_broker_loses_nothing_and_logs_nothing_twice(tmp_path: Path) -> None:
    with mortal_broker(tmp_path / "broker") as broker:
        restarter = Restarter(Fleet(tmp_path / "fleet", broker.url), every_step(passage=3))
        user = User(broker.url)
        async with under_fire(restarter, user, tasks_per_s=TASKS_PER_S, rest_s=REST_S):
            await restarter.wait_until_all_died(DIE_WITHIN_S)
            await broker.kill_and_start_again()

    died = set(restarter.died_at)
    assert died == {(service, step) for service, steps in STEPS_OF.items() for step in steps}, restarter.still_planned
    assert not restarter.crashes
    assert user.ledger.complaints() == [], user.ledger.rows()
    assert len(user.ledger.answers) > 100
    assert restarter.left == {}
    assert set(restarter.exit_codes.values()) == {0}
