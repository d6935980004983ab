"""How trainings ended, as it is kept in the index: bounded, over a restart, and a request that nobody answered."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ratchet.bus.topology import fleet_topology
from schemas.messages.training import AdapterTrained
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.training.scheduler import GIVE_UP_AFTER_S, KEPT, EndedRuns, TrainingScheduler
from services.orchestrator.training.trigger import TrainingPolicy
from tests.memory_bus import MemoryBus


def refused(number: int, reason: str = "too few groups") -> AdapterTrained:
    return AdapterTrained(request_id=f"r-{number}", agent_id="small", status="refused", reason=reason)


async def test_the_newest_are_kept_over_a_restart(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    ended = EndedRuns("small", ledger)
    ended.start()
    for number in range(KEPT + 5):
        ended.record(refused(number), None, None)
    ended.record(refused(50, "heard again"), None, None)

    again = EndedRuns("small", ledger)
    again.start()
    await ledger.close()

    assert [run.run_id for run in again.runs][:2] == ["r-5", "r-6"]
    assert [run.run_id for run in again.runs][-2:] == [f"r-{KEPT + 4}", "r-50"]
    assert len(again.runs) == KEPT
    assert again.runs[-1].view.reason == "heard again"


async def test_a_note_of_before_is_read(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    outcome = refused(1).model_dump_json(exclude_none=True)
    request = '{"request_id": "r-1", "agent_id": "small", "metadata": {"reason": "64 new useful groups"}}'
    note = f'{{"runs": [{{"outcome": {outcome}, "request": {request}, "asked_at": "2026-03-01T00:00:00Z"}}]}}'
    ledger.index.write_note("ended-trainings/small", note.encode())
    ended = EndedRuns("small", ledger)

    ended.start()
    await ledger.close()

    (run,) = ended.runs
    assert (run.run_id, run.state, run.view.why) == ("r-1", "refused", "64 new useful groups")
    assert run.asked_at == datetime(2026, 3, 1, tzinfo=UTC)


async def test_a_note_that_can_t_be_read_stops_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    ledger.index.write_note("ended-trainings/small", b'{"runs": [{"outcome": 3}]}')
    ended = EndedRuns("small", ledger)

    ended.start()
    ended.record(refused(1), None, None)
    await ledger.close()

    assert [run.run_id for run in ended.runs] == ["r-1"]


async def test_a_request_nobody_answered_within_a_day_has_failed_until_somebody_does(tmp_path: Path) -> None:
    now, even = [datetime(2026, 3, 1, tzinfo=UTC)], [50.0]
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    policy = TrainingPolicy(after_groups=1, every_s=0)
    training = TrainingScheduler("small", bus, ledger, policy, lambda: now[0], lambda: even[0])
    training.start()
    training._state.groups = 1
    await training.ask_if_due(allowed=True, primary="v1.0.0")
    waiting = training.open_run
    now[0] += timedelta(seconds=GIVE_UP_AFTER_S + 1)
    even[0] += GIVE_UP_AFTER_S + 1
    await training.ask_if_due(allowed=False, primary="v1.0.0")
    (lost,) = training.ended_runs
    assert waiting is not None and training.open_run is None
    training.note_outcome(AdapterTrained(request_id=waiting.run_id, agent_id="small", status="refused", reason="late"))
    (late,) = training.ended_runs
    await bus.stop(1.0)
    await ledger.close()

    assert (lost.run_id, lost.state, lost.view.why) == (waiting.run_id, "failed", "1 new useful groups")
    assert "within a day" in str(lost.view.reason)
    assert lost.view.seconds == GIVE_UP_AFTER_S + 1
    assert (late.state, late.view.reason, late.asked_at) == ("refused", "late", waiting.asked_at)


async def test_two_requests_with_no_task_between_them_are_two_runs(tmp_path: Path) -> None:
    """Groups that were under way at the first request, and are scored later, bring the second."""
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    policy = TrainingPolicy(after_groups=1, every_s=0)
    training = TrainingScheduler("small", bus, ledger, policy, lambda: datetime(2026, 3, 1, tzinfo=UTC), lambda: 50.0)
    training.start()
    for _ in range(2):
        training._state.groups = 1
        await training.ask_if_due(allowed=True, primary="v1.0.0")
        outcome = {"request_id": training.pending, "agent_id": "small", "status": "refused", "reason": "too few"}
        training.note_outcome(AdapterTrained.model_validate(outcome))
    await bus.stop(1.0)
    await ledger.close()

    assert len(training.ended_runs) == len(bus.deliveries_published("training")) == 2


@pytest.mark.parametrize("step_s", [86_400.0, -86_400.0, 365 * 86_400.0, -365 * 86_400.0])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_wall_clock_that_is_set_loses_no_request_and_brings_none(
    tmp_path: Path, step_s: float, restarted: bool
) -> None:
    now, even = [datetime(2026, 3, 1, tzinfo=UTC)], [50.0]
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    policy = TrainingPolicy(after_groups=0, every_s=7200)

    def scheduler() -> TrainingScheduler:
        made = TrainingScheduler("small", bus, ledger, policy, lambda: now[0], lambda: even[0])
        made.start()
        return made

    training = scheduler()
    training._state.groups = 1
    await training.ask_if_due(allowed=True, primary="v1.0.0")
    first = training.pending
    now[0] += timedelta(seconds=step_s)
    even[0] += 7199
    training = scheduler() if restarted else training
    await training.ask_if_due(allowed=True, primary="v1.0.0")
    assert first is not None and training.pending == first

    training.note_outcome(AdapterTrained(request_id=first, agent_id="small", status="failed", reason="why"))
    training._state.groups = 1
    await training.ask_if_due(allowed=True, primary="v1.0.0")
    assert training.pending is None
    even[0] += 1
    await training.ask_if_due(allowed=True, primary="v1.0.0")
    assert training.pending is not None
    even[0] += GIVE_UP_AFTER_S + 1
    await training.ask_if_due(allowed=False, primary="v1.0.0")
    assert training.pending is None
    await bus.stop(1.0)
    await ledger.close()


async def test_of_a_request_that_an_earlier_version_noted_no_more_than_a_day_counts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    note = {"groups": 0, "requested_at": 1_000_000.0, "pending": "small-1", "why": "2 new useful groups"}
    ledger.index.write_note("training/small", json.dumps(note).encode())
    policy = TrainingPolicy(after_groups=1, every_s=0)
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    training = TrainingScheduler("small", bus, ledger, policy, lambda: datetime(2026, 3, 1, tzinfo=UTC), lambda: 50.0)

    training.start()
    await training.ask_if_due(allowed=True, primary="v1.0.0")

    assert training.pending == "small-1"
    await bus.stop(1.0)
    await ledger.close()
