"""How trainings ended, as it is kept in the index: bounded, over a restart, and a request that nobody answered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from ratchet.bus.memory import MemoryBus
from ratchet.bus.topology import fleet_topology
from schemas.messages.adapter_trained import AdapterTrained
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.promotion.ended_runs import KEPT, EndedRuns
from services.orchestrator.promotion.training import GIVE_UP_AFTER_S, TrainingScheduler
from services.orchestrator.promotion.training_trigger import TrainingPolicy


def refused(number: int, reason: str = "too few groups") -> AdapterTrained:
    return AdapterTrained(request_id=f"r-{number}", agent_id="small", status="refused", reason=reason)


async def test_the_newest_are_kept_over_a_restart(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    ended = EndedRuns("small", ledger)
    ended.start()
    for number in range(KEPT + 5):
        ended.heard(refused(number), None, None)
    ended.heard(refused(50, "heard again"), None, None)

    again = EndedRuns("small", ledger)
    again.start()
    await ledger.close()

    assert [view.run_id for view in again.views][:2] == ["r-5", "r-6"]
    assert [view.run_id for view in again.views][-2:] == [f"r-{KEPT + 4}", "r-50"]
    assert len(again.views) == KEPT
    assert again.views[-1].reason == "heard again"


async def test_a_note_that_can_t_be_read_stops_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    ledger.index.write_note("ended-trainings/small", b'{"runs": [{"outcome": 3}]}')
    ended = EndedRuns("small", ledger)

    ended.start()
    ended.heard(refused(1), None, None)
    await ledger.close()

    assert [view.run_id for view in ended.views] == ["r-1"]


async def test_a_request_nobody_answered_within_a_day_has_failed_until_somebody_does(tmp_path: Path) -> None:
    now = [datetime(2026, 3, 1, tzinfo=UTC)]
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    training = TrainingScheduler("small", bus, ledger, TrainingPolicy(after_groups=1, every_s=0), lambda: now[0])
    training.start()
    training._state.groups = 1
    await training.ask_if_due(allowed=True, primary="v1.0.0")
    waiting = training.open_run
    now[0] += timedelta(seconds=GIVE_UP_AFTER_S + 1)
    await training.ask_if_due(allowed=False, primary="v1.0.0")
    (lost,) = training.ended_runs
    assert waiting is not None and training.open_run is None
    training.ended(AdapterTrained(request_id=waiting.run_id, agent_id="small", status="refused", reason="late"))
    (late,) = training.ended_runs
    await bus.stop(1.0)
    await ledger.close()

    assert (lost.run_id, lost.state, lost.why) == (waiting.run_id, "failed", "1 new useful groups")
    assert lost.reason is not None and "within a day" in lost.reason
    assert lost.seconds == GIVE_UP_AFTER_S + 1
    assert (late.state, late.reason, late.asked_at) == ("refused", "late", waiting.asked_at)
