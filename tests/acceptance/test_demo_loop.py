"""The demo's loop on a fleet of echoes: it asks tasks and trainings, and the fleet decides the rest by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from demos.books import Account, account
from ratchet.logs.reader import read_json
from services.cli.terminal import CommandError
from tests.acceptance.fleet import Fleet
from tests.acceptance.foreign_trainer import foreign_trainer
from tests.acceptance.loops import BY_VERSION, GROUPS, SAMPLES, loop_on
from tests.acceptance.ratchet_command import ForkedRatchet
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def fleet(start_fleet: Callable[..., Fleet]) -> Fleet:
    return start_fleet(environment=BY_VERSION)


def test_a_turn_promotes_what_is_better_and_the_bad_adapter_is_thrown_out(fleet: Fleet) -> None:
    loop, users, told = loop_on(fleet, "good")
    with foreign_trainer(fleet) as requests:
        turn = loop.turn(1)
    bad = loop.sabotage(SAMPLES)

    assert (turn.version, turn.parent, turn.state) == ("v1.0.1", "v1.0.0", "stable")
    assert (turn.training.groups, turn.training.seconds, turn.training.steps) == (64, 1.5, 4)
    assert turn.swap_s is not None
    assert (bad.version, bad.state) == ("v1.0.2", "rolled_back")
    assert 0 < bad.tasks <= 20 < bad.traffic
    assert bad.samples == bad.tasks * SAMPLES
    assert users.books.by_version["v1.0.2"] == bad.tasks
    assert account(users.books, fleet.logs) == Account(len(users.books.asked), 0, 0, 0)
    (request,) = requests
    assert groups_in(fleet, request.since, request.until or 0) >= GROUPS
    assert "canary: v1.0.1 against v1.0.0" in told.getvalue()
    assert "roll_back: harm, most of all in score" in told.getvalue()


def test_a_trainer_that_refuses_ends_the_turn_with_a_sentence(fleet: Fleet) -> None:
    loop, _, _ = loop_on(fleet, "refused")

    with (
        foreign_trainer(fleet, refuses="too few groups"),
        pytest.raises(CommandError, match=r"made no adapter of demo-refused-1.*trainer\.log"),
    ):
        loop.turn(1)


def test_train_queue_leaves_the_run_to_the_fleet_s_trainer(fleet: Fleet, tmp_path: Path) -> None:
    ratchet = ForkedRatchet(tmp_path, {"RATCHET_AMQP_URL": fleet.amqp_url, "RATCHET_NAMESPACE": fleet.namespace})

    with foreign_trainer(fleet, refuses="not today") as requests:
        ran = ratchet("train", "--queue", "--loss", "gspo")
        wait_until(lambda: requests, "a request for training")

    assert ran.code == 0, ran.err
    assert [(r.request_id, r.agent_id, r.hyperparameters) for r in requests] == [
        (ran.out.strip(), "small", {"loss": "gspo"})
    ]


def groups_in(fleet: Fleet, since: int, until: int) -> int:
    lines = (line for line in read_json(fleet.logs, "agent_interactions", dict, since) if line.end <= until)
    return len({line.value["task_id"] for line in lines})
