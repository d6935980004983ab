"""A bench of many minutes that is ended before its time: no more is asked, and it says how far it came."""

from __future__ import annotations

import asyncio
import signal

import pytest

from bench.long_run import EarlyEnd, Pace, early_end
from bench.rollouts.rig import OPEN, Asking
from tests.waiting import until


def test_a_first_signal_asks_for_the_end_and_a_second_one_is_the_end() -> None:
    before, asked = signal.getsignal(signal.SIGTERM), []

    with pytest.raises(KeyboardInterrupt), early_end() as end:
        asked.append(end.asked)
        signal.raise_signal(signal.SIGTERM)
        asked.append(end.asked)
        signal.raise_signal(signal.SIGINT)

    assert asked == [False, True]
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_is_left_is_told_by_the_pace_so_far() -> None:
    now = iter((0.0, 0.0, 600.0))
    pace = Pace(200, lambda: next(now))

    assert "no end in sight" in pace.describe(0)
    assert pace.describe(50).startswith("50 of 200 tasks in 10.0 min, some 30 min left")
    assert pace.load.count(" to ") == 1


async def test_tasks_are_asked_as_others_are_answered_and_none_once_the_end_is_asked_for() -> None:
    class Unheard(Asking):
        async def _publish_one(self, task_id: str) -> None:
            self.ledger.attempted.add(task_id)

    user, end = Unheard("amqp://nowhere", "", []), EarlyEnd()
    publishing = asyncio.create_task(user.publish_as_answered(1000, end, lambda: 1000))
    await until(lambda: user.open == OPEN)

    user.ledger.answers[min(user.ledger.attempted)] += 1
    await until(lambda: len(user.ledger.attempted) == OPEN + 1)
    end.asked = True
    await publishing

    assert len(user.ledger.attempted) == OPEN + 1
