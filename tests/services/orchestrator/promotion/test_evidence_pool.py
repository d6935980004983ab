"""Two fleets with one experiment: the units of both count, both see one verdict, and a kill changes nothing."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ratchet.experiments.experiment import Experiment
from ratchet.experiments.records import MOST_FLEETS, PooledLine, experiments, own_number, pooled_number
from ratchet.experiments.replay import replay_experiment
from ratchet.experiments.unit import Outcome
from ratchet.logs.follower import AdaptersInUse, FollowerNote, read_follower_note, write_follower_note
from ratchet.logs.names import ASSIGNMENTS, AUDITS, INTERACTIONS, POOLED, active_path, is_own, source
from schemas.messages.task import Task
from schemas.messages.work import Arm
from schemas.records.decision import RollBack
from schemas.records.registry import AdapterEntry, EntryState
from services.orchestrator.promotion.evidence_pool import TASK_LOGS, EvidencePool, FleetLogs
from services.orchestrator.settings import OrchestratorSettings
from tests.ratchet.adapters.making_decisions import decided
from tests.services.orchestrator.learning_house import AGENT, LearningHouse, learning_house
from tests.services.trainer.making_logs import group, write_log
from tests.waiting import settled, until

BETTER = {"v1.0.0": 0.4, "v1.0.1": 0.8}
LEVEL = {"v1.0.0": 0.4, "v1.0.1": 0.45}
"""Too much alike to be told apart soon."""
QUICK = {"experiment_min_units_per_arm": 10, "watch_share": 0.0}


def deciding(folder: Path) -> dict[str, Any]:
    return QUICK | {"pooled_logs": (folder / "second",)}


def following(folder: Path) -> dict[str, Any]:
    return QUICK | {"pool": folder / "first", "fleet_number": 1, "adapters_dir": folder / "first" / "adapters"}


@asynccontextmanager
async def two_fleets(
    folder: Path, quality: dict[str, float], **settings: Any
) -> AsyncIterator[tuple[LearningHouse, LearningHouse]]:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(
            learning_house(folder / "first", quality, **deciding(folder) | settings)
        )
        second = await stack.enter_async_context(
            learning_house(folder / "second", quality, **following(folder) | settings)
        )
        second.tasks = "other"
        yield first, second


def trial(house: LearningHouse) -> Experiment:
    found = house.orchestrator.parts.promoters[AGENT].arms.experiment
    assert found is not None
    return found


def units(house: LearningHouse) -> int:
    """Tasks of this fleet that count in the experiment."""
    found = ((line["task_id"], line["arm"].get("experiment_id")) for line in house.assigned())
    return len({task_id for task_id, experiment_id in found if experiment_id and not is_own(experiment_id)})


def kinds(house: LearningHouse) -> list[str]:
    return [decision.move.kind for decision, _ in house.store.ledger.read()]


async def both(first: LearningHouse, second: LearningHouse, stop_when: Any) -> None:
    await asyncio.gather(first.traffic(stop_when=stop_when), second.traffic(stop_when=stop_when))


@pytest.mark.parametrize("quality", [0.8, 0.1])
async def test_two_fleets_come_to_the_verdict_that_one_comes_to(tmp_path: Path, quality: float) -> None:
    qualities = {"v1.0.0": 0.4, "v1.0.1": quality}
    async with learning_house(tmp_path / "alone", qualities, **QUICK) as alone:
        await alone.reach(await alone.trained(), "canary")
        await alone.traffic(stop_when=lambda: alone.adapters.experiment is None)

    async with two_fleets(tmp_path, qualities) as (first, second):
        version = await first.trained()
        await first.reach(version, "canary")
        await until(lambda: second.is_trying)
        await both(first, second, lambda: first.adapters.experiment is None)
        await until(lambda: not second.is_trying)

        assert kinds(first) == kinds(alone)
        assert first.adapters.primary == second.adapters.primary == alone.adapters.primary
        assert (first.adapters.primary == version) is (quality > qualities["v1.0.0"])


async def test_the_units_of_both_count_and_the_logs_alone_give_the_verdict_again(tmp_path: Path) -> None:
    async with two_fleets(tmp_path, BETTER) as (first, second):
        await first.reach(await first.trained(), "canary")
        await until(lambda: second.is_trying)
        live, followed = trial(first), trial(second)
        await both(first, second, lambda: first.adapters.experiment is None)
        await until(lambda: followed.final is not None)

        (record,) = experiments(decision for decision, _ in first.store.ledger.read())
        counted = live.evidence.units
        assert record.verdict == live.final == followed.final == replay_experiment(record.running, first.folder).final
        assert max(units(first), units(second)) < counted <= units(first) + units(second)
        assert units(second) > 0


async def test_a_fleet_that_comes_back_has_the_experiment_as_it_stood(tmp_path: Path) -> None:
    """Whichever of the two ends: what it left open is answered, counted once, and nothing is counted twice."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(learning_house(tmp_path / "first", LEVEL, **deciding(tmp_path)))
        async with learning_house(tmp_path / "second", LEVEL, **following(tmp_path)) as one:
            one.tasks = "other"
            await first.reach(await first.trained(), "canary")
            await until(lambda: one.is_trying)
            await both(first, one, lambda: min(units(first), units(one)) >= 20)
        all_units = units(first) + units(one)

        # when it comes back, it has audits made that were open as it ended
        again = await stack.enter_async_context(learning_house(tmp_path / "second", LEVEL, **following(tmp_path)))
        await until(lambda: trial(first).evidence.units == all_units)
        before = trial(first).decision
        await until(lambda: again.is_trying and trial(again).decision == before)

    async with learning_house(tmp_path / "first", LEVEL, **deciding(tmp_path)) as decider:
        await until(lambda: trial(decider).decision == before)


def test_a_line_that_was_logged_twice_keeps_nothing_back(tmp_path: Path) -> None:
    # given two groups, and between them once more a line of the first
    arm = Arm(adapter_version="v1.0.1", experiment_id="e-1", sequence=1)
    first, second = (group(task, [0.1, 0.2], arm=arm) for task in ("one", "two"))
    write_log(tmp_path, [*first, first[0], *second])
    fleet = FleetLogs(0, tmp_path)
    fleet.open({source(0, INTERACTIONS): 0})

    # when they are read
    found = fleet.read()

    # then both count once, and a restart would go on behind the last line
    assert [line.end for line in found] == [len(b"".join(first)), len(b"".join([*first, first[0], *second]))]


@pytest.mark.parametrize("log", [ASSIGNMENTS, INTERACTIONS, AUDITS])
def test_outcomes_are_read_again_after_a_log_could_not_be_opened(tmp_path: Path, log: str) -> None:
    # given a group that ended, and a log that can't be opened for now, as on a network's disk
    arm = Arm(adapter_version="v1.0.1", experiment_id="e-1", sequence=1)
    lines = group("one", [0.1, 0.2], arm=arm)
    write_log(tmp_path, lines)
    fleet = FleetLogs(0, tmp_path)
    fleet.open({source(0, name): 0 for name in TASK_LOGS})
    path, aside = active_path(tmp_path, log), tmp_path / "aside"
    if path.exists():
        path.rename(aside)
    path.mkdir()

    # when it is read, and once more when it can be opened again
    with pytest.raises(IsADirectoryError):
        fleet.read()
    path.rmdir()
    if aside.exists():
        aside.rename(path)

    # then the outcome is there
    (found,) = fleet.read()
    assert (found.outcome is not None, found.end) == (True, len(b"".join(lines)))


class LateRegistry:
    """Stands in for a promoter that hears of an experiment from a registry which can't be read at first."""

    def __init__(self) -> None:
        self.counted: list[int] = []
        self.reads = 0
        self.arms = SimpleNamespace(adapters=SimpleNamespace(running=()), trials=[])

    async def read_registry(self) -> None:
        self.reads += 1
        if self.reads == 1:
            raise OSError(errno.ESTALE, "Stale file handle")
        experiment = SimpleNamespace(observe=lambda number, _outcome: self.counted.append(number))
        self.arms.trials = [(SimpleNamespace(experiment_id="e-1"), experiment)]


async def test_pooled_lines_are_counted_once_the_registry_can_be_read_again(tmp_path: Path) -> None:
    # given three lines of an experiment that this fleet does not know yet
    promoter = LateRegistry()
    pool = EvidencePool(OrchestratorSettings(logs_dir=tmp_path), {AGENT: cast(Any, promoter)}, lambda: None)
    await pool.start()
    lines = [PooledLine("e-1", 0, INTERACTIONS, 1, number, outcome=Outcome(succeeded=True)) for number in range(3)]
    active_path(tmp_path, POOLED).write_bytes(b"".join(line.encode() + b"\n" for line in lines))

    # when the registry can't be read in the first turn, and can in the second
    with pytest.raises(OSError, match="Stale"):
        await pool.turn()
    await pool.turn()

    # then each counts once
    assert promoter.counted == [pooled_number(number, 0) for number in range(3)]


async def test_an_experiment_whose_evidence_is_gone_from_a_fleets_logs_is_aborted(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(learning_house(tmp_path / "first", LEVEL, **deciding(tmp_path)))
        async with learning_house(tmp_path / "second", LEVEL, **following(tmp_path)) as second:
            second.tasks = "other"
            await first.reach(await first.trained(), "canary")
            await until(lambda: second.is_trying)
            await both(first, second, lambda: min(units(first), units(second)) >= 5)

        active_path(tmp_path / "second", ASSIGNMENTS).write_bytes(b"")

        await until(lambda: first.adapters.experiment is None)
        *_, last = (decision for decision, _ in first.store.ledger.read())
        assert "the logs of fleet 1 can't be read on" in last.reason


async def test_a_fleet_that_follows_decides_nothing(tmp_path: Path) -> None:
    async with two_fleets(tmp_path, BETTER) as (first, second):
        await second.told_of("v1.0.1", "0" * 64)

        (reason,) = await second.dead_letters()

        assert "follows another's decisions" in reason
        assert kinds(first) == []


async def test_an_archived_adapter_stays_while_a_task_of_a_fleet_that_follows_needs_it(tmp_path: Path) -> None:
    # given a follower whose agent has a task with a candidate, which was rolled back and archived since
    keep_one = {"keep_adapters": 1, "golden_from_traffic": False}
    async with two_fleets(tmp_path, LEVEL | {"v1.0.2": 0.4}, **keep_one) as (first, second):
        await first.reach(await first.trained(), "canary")
        await until(lambda: second.is_trying)
        second.may_answer.clear()
        open_tasks = [Task(task_id=f"open-{number}", input="x") for number in range(200)]
        for task in open_tasks:
            await second.submit(task)
        await until(lambda: any(work["arm"]["adapter_version"] == "v1.0.1" for work in second.assigned()))
        decided(first.store, RollBack(version="v1.0.1"))
        await first.reach(await first.trained(seed=2), "canary")
        await first.reach("v1.0.1", "archived")
        folder = first.folder / "adapters" / AGENT / "v1.0.1"

        async def is_seen_by_second() -> bool:
            await first.report()
            await second.report()
            note = read_follower_note(second.folder)
            return note is not None and note.agents[AGENT].revision >= first.adapters.versions["v1.0.1"].decision

        # when the follower knows of it and still has the task, then the folder stays
        await until(is_seen_by_second)
        for _ in range(20):
            await first.report()
            await settled()
        assert folder.exists()

        # when the task is answered, then it goes
        second.may_answer.set()

        async def is_gone() -> bool:
            await first.report()
            await second.report()
            return not folder.exists()

        await until(is_gone)


async def test_a_fleet_that_is_gone_for_good_keeps_no_folder_once_it_is_off_the_list(tmp_path: Path) -> None:
    # given an archived adapter, and a fleet that is on the list and never said that it is done with it
    settings = QUICK | {"keep_adapters": 1, "golden_from_traffic": False}
    folder = tmp_path / "first" / "adapters" / AGENT / "v1.0.1"
    async with learning_house(tmp_path / "first", LEVEL | {"v1.0.2": 0.4}, **deciding(tmp_path) | settings) as first:
        await first.reach(await first.trained(), "canary")
        decided(first.store, RollBack(version="v1.0.1"))
        await first.reach(await first.trained(seed=2), "canary")
        await first.reach("v1.0.1", "archived")
        for _ in range(20):
            await first.report()
            await settled()
        assert folder.exists()
        decided(first.store, RollBack(version="v1.0.2"))

    # when the fleet that decides is started without it, then the folder goes
    async with learning_house(tmp_path / "first", LEVEL, **settings) as first:

        async def is_gone() -> bool:
            if first.events:
                await first.report()
            return not folder.exists()

        await until(is_gone)


def test_an_archived_adapter_stays_until_each_fleet_that_follows_has_said_what_it_uses(tmp_path: Path) -> None:
    entry = AdapterEntry(version="v1.0.1", state=EntryState.ARCHIVED, decision=7)

    def is_done(revision: int, *versions: str) -> bool:
        write_follower_note(tmp_path, FollowerNote(1, {AGENT: AdaptersInUse(revision, versions)}))
        note = read_follower_note(tmp_path)
        return note is not None and note.is_done_with(AGENT, entry)

    assert read_follower_note(tmp_path) is None
    assert not is_done(6)
    assert not is_done(7, "v1.0.1")
    assert is_done(7, "v1.0.2")


def test_tasks_of_all_fleets_have_numbers_of_their_own() -> None:
    numbers = {pooled_number(sequence, fleet) for sequence in range(100) for fleet in range(MOST_FLEETS)}

    assert len(numbers) == 100 * MOST_FLEETS
    assert own_number(pooled_number(7, 3), 3) == 7
    assert own_number(pooled_number(7, 3), 2) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"pool": "/logs"},
        {"fleet_number": 1},
        {"pool": "/logs", "fleet_number": 1, "pooled_logs": "/others"},
        {"pooled_logs": "/others", "cascade": "small=other", "agents": ("small", "other")},
    ],
)
def test_settings_that_can_not_pool_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="RATCHET_POOL"):
        OrchestratorSettings(**settings)
