"""A scorer slower than its users: what it scores is in time, the rest costs it nothing. In simulated time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ratchet.bus.topology import RESPONSES, REWARDS, fleet_topology
from schemas.messages.response import Response, Sample
from schemas.messages.reward import Reward, SampleScore, ScorerIdentity
from schemas.messages.work import Arm, Sampling, Work
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import ScoringRequest
from services.scorer.worker import CALLED_OFF, LOST_ROLLOUT, TOO_LATE, Lateness, ScorerWorker
from tests.memory_bus import MemoryBus
from tests.quick import rounds

START = datetime(2031, 5, 1, tzinfo=UTC)


class _Jumping(selectors.SelectSelector):
    """Does not wait: the time it would have waited is over."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += max(0.0, timeout or 0.0)
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _Jumping()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def simulated(main: Coroutine[Any, Any, Any]) -> Any:
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def now() -> datetime:
    return START + timedelta(seconds=steady())


def wall() -> float:
    return now().timestamp()


def steady() -> float:
    return asyncio.get_running_loop().time()


class Judge:
    """So many calls at once, each of which takes so long."""

    identity = ScorerIdentity(id="judge", revision="1")

    def __init__(self, at_once: int, call_s: float) -> None:
        self._free = asyncio.Semaphore(at_once)
        self.call_s = call_s

    async def start(self) -> None:
        """Nothing to load."""

    async def stop(self) -> None:
        """Nothing to close."""

    def trouble(self) -> str | None:
        return None

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        async with self._free:
            await asyncio.sleep(self.call_s)  # simulated
        return [SampleScore(score=1.0)] * len(request.answers)


def response(number: int, allowed_s: float) -> Response:
    work = Work(
        task_id=f"t-{number}",
        input="x",
        agent_id="small",
        deadline=now() + timedelta(seconds=allowed_s),
        arm=Arm(sequence=number),
        sampling=Sampling(n=1),
        admitted_at=now(),
    )
    return Response(task_id=work.task_id, response="y", agent_id="small", samples=(Sample(text="y"),), work=work)


async def overloaded(
    *, hours: float, per_s: float, at_once: int, call_s: float, allowed_s: float, prefetch: int
) -> list[tuple[float, bool, bool]]:
    """(when, was it scored, was that in time) of every Reward."""
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    settings = ScorerSettings(scorer_prefetch=prefetch)
    worker = ScorerWorker(settings, bus, Judge(at_once, call_s), wall=wall, seconds=steady)
    told: list[tuple[float, bool, bool]] = []

    def note(delivery: Any) -> None:
        reward = Reward.decode(delivery.body)
        assert reward.scored is not None and reward.scored.work is not None
        told.append((asyncio.get_running_loop().time(), reward.score is not None, now() < reward.scored.work.deadline))

    await bus.listen(REWARDS, note)
    await bus.consume(RESPONSES, worker.handle, prefetch=prefetch)
    for number in range(int(hours * 3600 * per_s)):
        await bus.publish(RESPONSES, response(number, allowed_s).encode(), type=Response.TYPE, message_id=f"r{number}")
        await asyncio.sleep(1 / per_s)  # simulated
    await bus.stop(60)
    return told


@pytest.mark.parametrize(
    ("at_once", "call_s", "allowed_s", "prefetch"),
    [(8, 4.0, 300.0, 128), (1, 0.5, 20.0, 128), (8, 4.0, 60.0, 8)],
    ids=["a judge", "one at a time and little time", "nothing waits inside"],
)
def test_at_twice_what_it_can_do_for_a_quarter_of_an_hour_it_still_does_most_of_what_it_can(
    at_once: int, call_s: float, allowed_s: float, prefetch: int
) -> None:
    capacity, minutes = at_once / call_s, rounds(16, quick=10)

    judge = {"at_once": at_once, "call_s": call_s}
    told = simulated(
        overloaded(hours=minutes / 60, per_s=2 * capacity, **judge, allowed_s=allowed_s, prefetch=prefetch)
    )

    for minute in range(1, minutes - 3, 3):
        window = [one for one in told if minute * 60 <= one[0] < (minute + 3) * 60]
        good = sum(scored and in_time for _, scored, in_time in window)
        assert good >= 0.8 * capacity * 180, f"from minute {minute}: {good / capacity / 180:.2f} of its capacity"


def test_with_time_to_spare_nothing_is_passed_over() -> None:
    told = simulated(overloaded(hours=0.2, per_s=1.5, at_once=8, call_s=4.0, allowed_s=300, prefetch=128))
    assert all(scored and in_time for _, scored, in_time in told)


@pytest.mark.parametrize("jump", [timedelta(days=1), timedelta(days=-1), timedelta(days=365), timedelta(days=-365)])
def test_a_clock_that_is_set_while_answers_are_scored_passes_none_over(jump: timedelta) -> None:
    async def scored_over_a_jump() -> list[float | None]:
        bus, ahead = MemoryBus(fleet_topology(("small",))), [timedelta()]
        await bus.start()

        def wrong() -> float:
            return (now() + ahead[0]).timestamp()

        worker = ScorerWorker(ScorerSettings(), bus, Judge(1, 1.0), wall=wrong, seconds=steady)
        in_hand = [asyncio.create_task(worker.handle(bus_delivery(response(number, 60.0)))) for number in range(2)]
        await asyncio.sleep(0.5)  # simulated
        ahead[0] = jump
        await asyncio.gather(*in_hand, *(worker.handle(bus_delivery(response(number, 60.0))) for number in range(2, 9)))
        return [Reward.decode(published.body).score for published in bus.deliveries_published(REWARDS)]

    assert simulated(scored_over_a_jump()) == [1.0] * 9


def test_what_has_expired_is_answered_with_its_reason_and_the_judge_is_not_asked() -> None:
    async def one_late() -> Reward:
        bus = MemoryBus(fleet_topology(("small",)))
        await bus.start()
        worker = ScorerWorker(ScorerSettings(), bus, Judge(0, 1.0), wall=wall, seconds=steady)
        late = response(1, -1.0)
        ended = [Sample(text="", status=status) for status in ("finished", "lost", "cancelled")]
        late = late.model_copy(update={"samples": tuple(ended)})
        await worker.handle(bus_delivery(late))
        (published,) = bus.deliveries_published(REWARDS)
        return Reward.decode(published.body)

    reward = simulated(one_late())
    assert reward.score is None
    assert [(score.status, score.reason) for score in reward.scores] == [
        ("timeout", TOO_LATE),
        ("infra_fail", LOST_ROLLOUT.reason),
        ("cancelled", CALLED_OFF.reason),
    ]
    assert reward.scored is not None


def bus_delivery(of: Response) -> Any:
    from ratchet.bus.protocol import Delivery

    return Delivery(RESPONSES, of.encode(), type=Response.TYPE)


def test_one_slow_moment_does_not_pass_over_for_ever() -> None:
    lateness = Lateness()
    first, second = lateness.begin(), lateness.begin()
    lateness.end(100_000.0, second)
    assert lateness.too_late(10.0)
    lateness.end(1.0, first)
    assert not lateness.too_late(10.0)  # nothing is in hand: the next one tells how long it takes now
    assert lateness.too_late(0.0)
