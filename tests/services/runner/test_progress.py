"""What a runner tells the fleet: all of it each time, ends for half a minute, and nothing where there is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import ROLLOUTS_TOPIC, fleet_topology
from schemas.messages.runner_rollouts import RolloutProgress, RolloutState, RunnerRollouts
from services.runner.progress import KEPT, REPEATED_S, Progress
from tests.memory_bus import MemoryBus


def one(sample: int, state: RolloutState = "running") -> RolloutProgress:
    return RolloutProgress(
        task_id="t-1",
        agent_id="small",
        program="shell",
        sample=sample,
        state=state,
        started_at=datetime(2031, 5, 1, tzinfo=UTC),
        seconds=1.0,
        calls=1,
        sampled_tokens=5,
    )


async def test_all_is_told_each_time_and_the_end_of_all_once_more() -> None:
    bus, told, at = MemoryBus(fleet_topology(("small",))), list[RunnerRollouts](), [0.0]
    running: list[RolloutProgress] = []
    await bus.start()

    def hear(delivery: Delivery) -> None:
        told.append(RunnerRollouts.decode(delivery.body))

    def state() -> tuple[Sequence[RolloutProgress], int, int]:
        return running, 3 if running else 0, 8

    await bus.listen(ROLLOUTS_TOPIC, hear)
    progress = Progress(bus, "host-1", state, lambda: at[0])

    await progress.tell()
    assert told == []
    running += [one(0), one(1)]
    await progress.tell()
    running.pop(0)
    progress.note(one(0, "limit"))
    await progress.tell()
    running.clear()
    progress.note(one(1, "finished"))
    at[0] = REPEATED_S
    await progress.tell()
    at[0] = REPEATED_S + 1
    await progress.tell()
    await progress.tell()

    assert [[(item.sample, item.state) for item in message.items] for message in told] == [
        [(0, "running"), (1, "running")],
        [(0, "limit"), (1, "running")],
        [(0, "limit"), (1, "finished")],
        [],
    ]
    assert [(message.runner, message.at_once, message.waiting) for message in told[:2]] == [("host-1", 8, 3)] * 2
    assert [(item.sample, item.state) for item in progress.ended] == [(0, "limit"), (1, "finished")]


def test_only_so_many_ends_are_remembered() -> None:
    progress = Progress(MemoryBus(fleet_topology(("small",))), "host-1", lambda: ((), 0, 8))

    for number in range(KEPT + 1):
        progress.note(one(number, "failed"))

    assert [item.sample for item in progress.ended][:2] == [1, 2]
