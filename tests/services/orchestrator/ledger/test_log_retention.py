"""The disk stays within its bound, and no removed task becomes new again: live, after a kill, after a rebuild."""

from __future__ import annotations

import asyncio
import shutil
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from ratchet.bus.topology import REWARDS
from ratchet.logs.names import ASSIGNMENTS, FEEDBACK, INTERACTIONS, TASK_LOGS
from ratchet.logs.reader import read
from ratchet.logs.retention.plan import SETTLING_S
from ratchet.logs.retention.pruner import sizes
from ratchet.logs.segments import read_start_offsets, sealed_segments
from ratchet.service.errors import JournalError, LogRemoved
from ratchet.service.failpoint import RETENTION_STEPS
from schemas import Result, Task, Work
from schemas.messages.feedback import LoggedFeedback
from schemas.records.interaction import Interaction
from services.orchestrator.feedback.feedback_service import FeedbackLog
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.ledger.log_retention import LogRetention
from services.orchestrator.settings import OrchestratorSettings
from tests.services.orchestrator.house import House, answered, house, scored
from tests.services.orchestrator.old_logs import NOW, SEGMENT_BYTES, answer, open_ledger, prune, prune_until
from tests.waiting import until

TASKS = 160
KEEP = 15_000


@pytest.fixture(scope="module")
def answered_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all tasks, which take a second: for copies only."""
    folder = tmp_path_factory.mktemp("answered")

    async def fill() -> None:
        ledger = await open_ledger(folder)
        await answer(ledger, 0, TASKS)
        await ledger.close()

    asyncio.run(fill())
    return folder


async def filled(folder: Path, answered_logs: Path) -> Ledger:
    shutil.copytree(answered_logs, folder, dirs_exist_ok=True)
    return await open_ledger(folder)


async def given_feedback(folder: Path) -> FeedbackLog:
    """One for each task, when the task came."""
    log = FeedbackLog(folder, segment_bytes=SEGMENT_BYTES)
    await log.open()
    for number in range(TASKS):
        line = LoggedFeedback(
            feedback_id=f"f{number}",
            task_id=f"t{number}",
            sample=0,
            score=1.0,
            agent_id="small",
            adapter_version="v1.0.0",
            timestamp=NOW + timedelta(minutes=number),
        )
        await log.add(line)
    return log


def disk(folder: Path) -> int:
    return sum(sizes(folder).values())


def files(folder: Path) -> list[Path]:
    """But for those SQLite makes to read the index."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("index.sqlite"))


async def check_nothing_is_new(folder: Path) -> None:
    """Every task is known, as it was or as removed; numbers go on; what is left can be read from the beginning."""
    ledger = await open_ledger(folder)
    floor = read_start_offsets(folder)
    for number in range(TASKS):
        known = ledger.find(f"t{number}")
        assert (known is None) == (number < floor.sequence)
        assert ledger.has_forgotten(f"t{number}") == (number < floor.sequence)
        assert known is None or known.result is not None
    assert not ledger.has_forgotten("another")
    assert ledger.index.count() == (TASKS, 0)
    assert ledger.next_sequence() == TASKS
    await ledger.close()
    left = [Interaction.decode(line.data) for line in read(folder, INTERACTIONS)]
    assert {f"t{number}" for number in range(floor.sequence, TASKS)} <= {line.task_id for line in left}


@pytest.mark.parametrize("ahead", [timedelta(days=1), timedelta(days=365)], ids=["a day", "a year"])
@pytest.mark.parametrize("lasts_s", [3, 2 * SETTLING_S], ids=["seconds", "longer than it settles"])
async def test_a_clock_that_jumps_ahead_and_back_has_nothing_removed(
    tmp_path: Path, answered_logs: Path, ahead: timedelta, lasts_s: float
) -> None:
    # given logs of some hours that are kept for half a day, and a clock
    ledger = await filled(tmp_path, answered_logs)
    newest, time = NOW + timedelta(minutes=TASKS), Clocks()
    time.wall = newest
    retention = LogRetention(
        ledger,
        (),
        settings(tmp_path, log_keep_gb=0, log_keep_days=0.5),
        clock=lambda: time.wall,
        seconds=lambda: time.monotonic,
    )
    before = sealed(tmp_path)

    async def turns(seconds: float) -> None:
        """Twice a minute, as in the fleet."""
        for _ in range(max(1, int(seconds / 30))):
            time.pass_by(min(30.0, seconds))
            await retention.turn()

    # when it jumps, and goes back
    await turns(SETTLING_S * 2)
    time.wall += ahead
    await turns(lasts_s)
    assert sealed(tmp_path) >= before
    time.wall -= ahead
    await turns(SETTLING_S * 2)

    # then all is there; and what is old in truth goes
    assert sealed(tmp_path) >= before
    time.pass_by(timedelta(days=2).total_seconds())
    await retention.turn()
    assert not sealed(tmp_path) >= before
    await ledger.close()


def settings(folder: Path, **kept: Any) -> OrchestratorSettings:
    return OrchestratorSettings(logs_dir=folder, adapters_dir=folder / "adapters", **kept)


class Clocks:
    wall = NOW
    monotonic = 50.0

    def pass_by(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.monotonic += seconds


def sealed(folder: Path) -> set[str]:
    """Names of the segments of both logs, compressed or not."""
    return {segment.path.name.split(".")[0] for log in TASK_LOGS for segment in sealed_segments(folder, log)}


async def test_the_oldest_go_until_the_rest_fits_and_are_known_as_removed(tmp_path: Path, answered_logs: Path) -> None:
    # given logs of many segments
    ledger, feedback = await filled(tmp_path, answered_logs), await given_feedback(tmp_path)
    before = disk(tmp_path)
    assert before > 1.5 * KEEP
    retention = LogRetention(ledger, (feedback,), settings(tmp_path, log_keep_gb=KEEP / 1e9), clock=lambda: NOW)

    # when the clock ticks, they fit, and the metrics say so
    await retention.turn()
    assert disk(tmp_path) <= KEEP
    assert REGISTRY.get_sample_value("ratchet_log_removal_held") == 0
    on_metrics = [REGISTRY.get_sample_value("ratchet_log_bytes", {"log": log}) for log in (ASSIGNMENTS, INTERACTIONS)]
    assert sum(size or 0 for size in on_metrics) == disk(tmp_path)

    # then feedback that is older than all tasks left is gone, and the rest is there
    left = [LoggedFeedback.decode(line.data).feedback_id for line in read(tmp_path, FEEDBACK)]
    assert 0 < len(left) < TASKS
    assert left[-1] == f"f{TASKS - 1}"
    assert feedback.find("f0") is None
    assert feedback.find(left[0]) is not None
    await feedback.close()
    reopened = FeedbackLog(tmp_path, segment_bytes=SEGMENT_BYTES)
    await reopened.open()
    assert reopened.find("f0") is None
    await reopened.close()

    # and the index has forgotten the tasks at once, and goes on
    removed = read_start_offsets(tmp_path).sequence
    assert 0 < removed < TASKS
    assert ledger.has_forgotten(f"t{removed - 1}")
    assert ledger.find(f"t{removed - 1}") is None
    assert ledger.find(f"t{removed}") is not None
    await ledger.close()
    await check_nothing_is_new(tmp_path)

    # and a rebuilt index knows the same
    (tmp_path / "index.sqlite").unlink()
    await check_nothing_is_new(tmp_path)


async def test_a_log_read_from_where_it_was_removed_says_so(tmp_path: Path, answered_logs: Path) -> None:
    ledger = await filled(tmp_path, answered_logs)
    second = next(line.end for line in read(tmp_path, INTERACTIONS))
    await ledger.close()
    prune(tmp_path, KEEP)

    with pytest.raises(LogRemoved, match="RATCHET_LOG_KEEP_GB"):
        list(read(tmp_path, INTERACTIONS, second))

    # but a segment that is missing without having been removed on purpose is a loss
    sealed_segments(tmp_path, INTERACTIONS)[0].path.unlink()
    with pytest.raises(JournalError, match="put it back"):
        list(read(tmp_path, INTERACTIONS))


async def test_a_dry_run_says_what_would_go_and_removes_nothing(tmp_path: Path, answered_logs: Path) -> None:
    await (await filled(tmp_path, answered_logs)).close()
    before = files(tmp_path)

    would = prune(tmp_path, KEEP, dry=True)

    assert files(tmp_path) == before
    went = prune(tmp_path, KEEP)
    assert [part.segment for part in would.removed] == [part.segment for part in went.removed]
    assert would.disk_bytes == went.disk_bytes == disk(tmp_path)


async def test_an_open_task_holds_what_came_after_it(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    await answer(ledger, 0, TASKS, stays_open=40)
    ledger.commit()
    await ledger.close()

    pruned = prune(tmp_path, 1)

    assert pruned.held is not None
    assert pruned.held.why == "task number 40 is open, or its user is not told yet"
    assert 0 < read_start_offsets(tmp_path).sequence <= 40
    ledger = await open_ledger(tmp_path)
    known = ledger.find("t40")
    assert known is not None
    assert known.work is not None
    await ledger.close()
    (tmp_path / "index.sqlite").unlink()
    ledger = await open_ledger(tmp_path)
    assert ledger.find("t40") == known
    await ledger.close()


@pytest.mark.parametrize("step", RETENTION_STEPS)
async def test_killed_between_two_steps_the_next_turn_finishes(tmp_path: Path, answered_logs: Path, step: str) -> None:
    # given a retention that dies there
    await (await filled(tmp_path, answered_logs)).close()
    child = await asyncio.to_thread(prune_until, f"{step}:2", tmp_path, KEEP)
    assert child.code == -signal.SIGKILL, child.err

    # then all is known at the next start, and the turn after it ends the work
    await check_nothing_is_new(tmp_path)
    prune(tmp_path, KEEP)
    assert disk(tmp_path) <= KEEP
    floor = read_start_offsets(tmp_path)
    assert all(
        one.start >= floor.begin(log) for log in (ASSIGNMENTS, INTERACTIONS) for one in sealed_segments(tmp_path, log)
    )
    await check_nothing_is_new(tmp_path)


async def test_a_removed_task_asked_again_is_refused_with_a_sentence_and_not_run(
    tmp_path: Path, answered_logs: Path
) -> None:
    await (await filled(tmp_path, answered_logs)).close()
    prune(tmp_path, KEEP)

    async with house(tmp_path, segment_bytes=SEGMENT_BYTES) as fleet:
        await fleet.submit(Task(task_id="t0", input="x"))
        (result,) = await fleet.results()
        await fleet.submit(Task(task_id="new", input="x"))
        (work,) = await fleet.work()

    assert result.status == "failed"
    assert "another task_id" in str(result.reason)
    assert (work.task_id, work.arm.sequence) == ("new", TASKS)


async def test_a_closed_task_whose_user_is_not_told_yet_holds_its_lines(tmp_path: Path, answered_logs: Path) -> None:
    ledger, pending = await filled(tmp_path, answered_logs), 40
    of_one_byte = settings(tmp_path, log_keep_gb=1e-9)
    retention = LogRetention(ledger, (), of_one_byte, clock=lambda: NOW, first_pending=lambda: pending)

    await retention.turn()
    assert 0 < read_start_offsets(tmp_path).sequence <= pending

    pending = TASKS
    await retention.turn()
    assert read_start_offsets(tmp_path).sequence > 40
    await ledger.close()


async def test_who_was_not_told_before_a_kill_is_told_before_the_lines_go(tmp_path: Path, answered_logs: Path) -> None:
    # given an orchestrator that starts over logs that are beyond their bound, and before it a Reward that it handled
    # before a kill, of one of the oldest tasks
    await (await filled(tmp_path, answered_logs)).close()
    fleet = House(tmp_path, segment_bytes=SEGMENT_BYTES, log_keep_gb=KEEP / 1e9)
    await fleet.bus.start()
    answer = answered(Work.decode(next(read(tmp_path, ASSIGNMENTS)).data), "a", "b")
    await fleet.reward(scored(answer, 0.1, 0.9))
    await fleet.orchestrator.start()
    await asyncio.sleep(0.3)  # real time: retention would have begun

    # when it takes Rewards, its user is told, and then the lines go
    handle = fleet.orchestrator.subscriptions()[0].handler
    await fleet.bus.consume(REWARDS, lambda delivery: handle(delivery._replace(redelivered=True)), prefetch=1)
    await until(lambda: fleet.bus.deliveries_published("results"))
    (result,) = fleet.bus.deliveries_published("results")
    assert Result.decode(result.body).task_id == "t0"
    await until(lambda: read_start_offsets(tmp_path).sequence > 0)
    assert fleet.bus.waiting("dead-letters") == []
    await fleet.close()


async def test_thousands_of_removed_tasks_are_forgotten_in_several_steps(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    await answer(ledger, 0, 2 * TASKS)
    ledger.commit()
    prune(tmp_path, 1)
    removed = read_start_offsets(tmp_path).sequence
    ledger.index.forget_at_once = 50

    await ledger.forget_removed()

    assert [ledger.has_forgotten(f"t{number}") for number in (0, removed - 1, removed)] == [True, True, False]
    assert ledger.find("t0") is None
    await ledger.close()
