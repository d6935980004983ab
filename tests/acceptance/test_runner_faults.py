"""Rollouts while whatever takes part in them is killed at every step. At length: `bench.rollouts --kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.rollouts import people
from bench.rollouts.house import MOST_TOKENS
from bench.rollouts.kills import STRIKES, Plan, Strike, left_behind, measure
from bench.rollouts.left_behind import running
from services.cli.fleet.local_broker import server_folder
from tests.acceptance.brokers import mortal_broker
from tests.acceptance.fleet import AGENT, RUNNER, SCORER

pytestmark = [
    pytest.mark.long,
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.skipif(server_folder() is None, reason="kills its broker, so it needs a private RabbitMQ node"),
]

SOME = {
    *((RUNNER, step) for step in ("rollout-begun", "call-sampled", "rollout-ended", "rollout-kept", "before-ack")),
    *((AGENT, "call-sampled"), (SCORER, "worked"), ("broker", "published"), ("program", "call-sampled")),
}


async def test_each_rollout_is_logged_once_and_whole_whatever_is_killed(passable: Path) -> None:
    before = set(running())
    strikes = tuple(one for one in STRIKES if (one.victim, one.step) in SOME)
    with mortal_broker(passable / "broker") as broker:
        books, rig, _ = await measure(broker, passable, Plan(40, 4, seed=1, strikes=strikes, again=False))

    assert rig.complaints == []
    assert (books.lost, books.logged_twice, books.nulls_taught) == (0, 0, 0)
    assert {Strike(RUNNER, RUNNER, "rollout-ended"), Strike(AGENT, RUNNER, "call-sampled")} <= set(strikes)
    assert [str(one) for one in strikes if not rig.struck[str(one)]] == []
    assert left_behind(rig, passable, before) == []


@pytest.mark.parametrize("rollouts", [40, pytest.param(200, marks=pytest.mark.timeout(3600))])
async def test_each_question_is_asked_once_and_answered_once_whatever_is_killed(rollouts: int, passable: Path) -> None:
    before = set(running())
    plan = Plan(rollouts, 1, seed=1, strikes=people.STRIKES, again=rollouts == 200)
    with mortal_broker(passable / "broker") as broker:
        books, rig, _ = await people.measure(broker, passable, plan)

    assert rig.complaints == []
    least, most = people.QUESTIONS * books.finished, people.QUESTIONS * rollouts
    assert books.finished + books.killed == rollouts
    assert least <= books.decided <= books.accepted + books.unheard <= books.asked <= most
    assert books.calls >= least
    assert 0 <= books.sampled_beyond <= MOST_TOKENS * books.killed  # the call under way of each killed program
    assert set(books.refused) == {409}
    assert (books.looks > 0, books.most_held_while_waiting) == (True, 0)
    assert [str(one) for one in people.STRIKES if not rig.struck[str(one)]] == []
    assert books.given_again > 0
    assert left_behind(rig, passable, before) == []
