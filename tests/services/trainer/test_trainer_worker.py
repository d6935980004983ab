"""The trainer's worker over runs on disk: nothing trained twice, nothing forgotten, whatever dies."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from ratchet.adapters.registry import RegistryStore
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import ADAPTERS, TRAINING, fleet_topology
from ratchet.runs.store import RunFolder, RunStore
from ratchet.service.errors import BusError, Reject
from schemas.messages.training import AdapterTrained, TrainRequest
from services.trainer.run.progress import FIGURES as TOLD
from services.trainer.settings import TrainerSettings
from services.trainer.train import register
from services.trainer.worker import FIGURES, TrainerWorker
from tests.memory_bus import MemoryBus
from tests.waiting import settled, until

REQUEST = TrainRequest(request_id="small-7", agent_id="small")


@dataclass
class House:
    """The worker's settings, bus and jobs, and a training process that follows a script."""

    settings: TrainerSettings
    bus: MemoryBus
    folder: Path
    jobs: RunStore

    def script(self, words: str) -> None:
        (self.folder / "script").write_text(words)

    @property
    def ledger(self) -> list[str]:
        """What the training process was seen to do."""
        path = self.folder / "ledger"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def outcomes(self) -> list[AdapterTrained]:
        return [AdapterTrained.decode(delivery.body) for delivery in self.bus.deliveries_published(ADAPTERS)]

    @property
    def job(self) -> RunFolder:
        return self.jobs.folder("small", REQUEST.request_id)

    def worker(self, leave: Callable[[], None] = lambda: None) -> TrainerWorker:
        double = str(Path(__file__).with_name("scripted_process.py"))
        command = (sys.executable, double, str(self.folder / "script"), str(self.folder / "ledger"))
        return TrainerWorker(self.settings, self.bus, command=command, poll_every_s=0.05, leave=leave)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[TrainerWorker]:
        worker = self.worker()
        await worker.start()
        try:
            yield worker
        finally:
            await worker.stop()

    async def trained(self) -> None:
        """The request comes, and its run ends."""
        async with self.running() as worker:
            await worker.handle(delivery())
            await until(lambda: self.job.announced)


@pytest.fixture
async def house(tmp_path: Path) -> House:
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    settings = TrainerSettings.read(adapters_dir=tmp_path / "adapters", trainer_keep_jobs=2)
    house = House(settings, bus, tmp_path, RunStore(settings.adapters_dir))
    house.script("train")
    return house


def delivery(request: TrainRequest = REQUEST) -> Delivery:
    return Delivery(TRAINING, request.encode(), type=TrainRequest.TYPE)


async def test_a_request_becomes_an_adapter_that_is_told_of(house: House) -> None:
    await house.trained()

    (told,) = house.outcomes
    assert (told.status, told.request_id, told.adapter_version) == ("trained", "small-7", "v1.0.1")
    assert house.bus.deliveries_published(ADAPTERS)[0].message_id == "small-7/trained"


async def test_it_is_on_disk_before_it_is_acked_and_taken_up_by_the_next_trainer(house: House) -> None:
    await house.worker().handle(delivery())

    async with house.running():
        await until(lambda: house.job.announced)

    assert house.ledger == ["train small-7"]


async def test_a_request_that_comes_again_is_told_again_and_not_trained_again(house: House) -> None:
    async with house.running() as worker:
        await worker.handle(delivery())
        await until(lambda: len(house.outcomes) == 1)
        await worker.handle(delivery())
        await until(lambda: len(house.outcomes) == 2)

    assert house.ledger == ["train small-7"]
    assert house.outcomes[0] == house.outcomes[1]


async def several(folder: Path, agents: tuple[str, ...], at_once: int) -> House:
    bus = MemoryBus(fleet_topology(agents))
    await bus.start()
    given = {"agents": agents, "adapters_dir": folder / "adapters", "trainer_runs_at_once": at_once}
    settings = TrainerSettings.read(**given)
    return House(settings, bus, folder, RunStore(settings.adapters_dir))


async def test_several_runs_are_under_way_at_once_and_of_an_agent_one(tmp_path: Path) -> None:
    house = await several(tmp_path, ("a", "b", "c"), 2)
    house.script("hang")
    async with house.running() as worker:
        for request_id in ("a-1", "a-2", "b-1", "c-1"):
            await worker.handle(delivery(TrainRequest(request_id=request_id, agent_id=request_id[0])))
        await until(lambda: len(house.ledger) == 2)
        await settled()
        assert sorted(house.ledger) == ["hang a-1", "hang b-1"]


async def test_each_of_many_runs_is_done_and_told_once(tmp_path: Path) -> None:
    agents = ("a", "b", "c", "d")
    house = await several(tmp_path, agents, 3)
    house.script("train")
    wanted = {f"{agent}-{number}" for agent in agents for number in range(3)}
    async with house.running() as worker:
        for request_id in sorted(wanted):
            await worker.handle(delivery(TrainRequest(request_id=request_id, agent_id=request_id[0])))
        await until(lambda: len(house.outcomes) >= len(wanted))
        await settled()
    assert sorted(one.request_id for one in house.outcomes) == sorted(wanted)
    assert sorted(house.ledger) == sorted(f"train {request_id}" for request_id in wanted)


@pytest.mark.parametrize("count", [3, pytest.param(50, marks=pytest.mark.long)])
async def test_of_many_runs_under_way_at_once_each_adapter_is_registered_once(tmp_path: Path, count: int) -> None:
    # given a run of each of many agents, all of them under way
    agents = tuple(f"a{number}" for number in range(count))
    house = await several(tmp_path, agents, count)
    house.script("publish")
    async with house.running() as worker:
        for agent_id in agents:
            await worker.handle(delivery(TrainRequest(request_id=f"{agent_id}-1", agent_id=agent_id)))
        await until(lambda: len(house.ledger) == count, timeout_s=600)
        assert not house.outcomes

        # when they end, and each end is heard of twice
        (tmp_path / "go").touch()
        await until(lambda: len(house.outcomes) == count, timeout_s=600)
    for outcome in (*house.outcomes, *house.outcomes):
        register(house.settings, outcome)

    # then each agent has the one version that its run published
    registry = RegistryStore(house.settings.adapters_dir)
    registered = {name: sorted(one.versions) for name, one in registry.read().agents.items()}
    assert registered == {agent_id: ["v1.0.0", "v1.0.1"] for agent_id in agents}
    assert registry.read().revision == count


async def test_a_run_whose_process_dies_is_taken_up_again(house: House) -> None:
    house.script("die die train")

    await house.trained()

    assert house.ledger == ["die small-7", "die small-7", "train small-7"]
    assert [told.status for told in house.outcomes] == ["trained"]


async def test_a_run_that_kills_its_process_each_time_is_given_up_with_its_last_words(house: House) -> None:
    house.script("die")

    await house.trained()

    (told,) = house.outcomes
    assert told.status == "failed"
    assert told.reason is not None
    assert "given up after 3 attempts" in told.reason
    assert "SIGKILL" in told.reason and "it is going dark" in told.reason


async def test_a_run_that_comes_further_each_time_is_not_given_up(house: House) -> None:
    house.script("further further further further further train")

    await house.trained()

    assert [told.status for told in house.outcomes] == ["trained"]


async def test_a_stop_in_the_middle_is_no_attempt_and_ends_the_process(house: House) -> None:
    house.script("hang train")
    async with house.running() as worker:
        await worker.handle(delivery())
        await until(lambda: house.job.attempts == 1)

    assert house.job.attempts == 0
    async with house.running():
        await until(lambda: house.job.announced)
    assert house.ledger == ["hang small-7", "train small-7"]


async def test_a_run_another_trainer_is_at_is_left_to_it_and_looked_at_again(house: House) -> None:
    house.script("busy busy train")

    await house.trained()

    assert house.ledger == ["busy small-7", "busy small-7", "train small-7"]


async def test_what_could_not_be_told_is_told_later(house: House) -> None:
    house.bus.fail_publishes(2)

    async with house.running() as worker:
        await worker.handle(delivery())
        await until(lambda: house.job.announced)
        await until(lambda: worker.trouble() is None)

    assert len(house.outcomes) == 1


async def test_an_agent_that_is_not_of_the_fleet_is_rejected_and_who_asked_hears_it(house: House) -> None:
    with pytest.raises(Reject, match="agent 'nobody' is not of this fleet"):
        await house.worker().handle(delivery(TrainRequest(request_id="x", agent_id="nobody")))

    (told,) = house.outcomes
    assert (told.request_id, told.status, told.reason) == ("x", "failed", "agent 'nobody' is not of this fleet (small)")


async def test_old_records_are_forgotten_and_unfinished_ones_never(house: House) -> None:
    async with house.running() as worker:
        for number in range(5):
            await worker.handle(delivery(TrainRequest(request_id=f"run/{number}", agent_id="small")))
        await until(lambda: len(house.outcomes) == 5)
        await until(lambda: len(list((house.settings.adapters_dir / "small/.jobs").iterdir())) == 2)

    assert [told.request_id for told in house.outcomes] == [f"run/{number}" for number in range(5)]


async def test_what_the_process_tells_is_shown(house: House) -> None:
    await house.trained()

    labels = {"agent_id": "small"}
    assert REGISTRY.get_sample_value("ratchet_trainer_step", labels) == 1
    assert REGISTRY.get_sample_value("ratchet_trainer_steps", labels) == 2
    assert REGISTRY.get_sample_value("ratchet_trainer_figure", labels | {"figure": "loss"}) == 0.5
    assert REGISTRY.get_sample_value("ratchet_trainer_groups", labels | {"part": "groups"}) == 3


def test_every_figure_that_is_shown_is_told() -> None:
    assert set(FIGURES) <= set(TOLD.values())
    assert "gradient_norm" in FIGURES


async def test_a_trainer_for_one_request_leaves_when_nothing_is_left_and_takes_no_more(house: House) -> None:
    house.settings = TrainerSettings.read(adapters_dir=house.settings.adapters_dir, trainer_once=True)
    left = asyncio.Event()
    worker = house.worker(left.set)
    await worker.handle(delivery())

    await worker.start()
    async with asyncio.timeout(60):
        await left.wait()

    assert house.job.announced
    with pytest.raises(BusError, match="for the next one"):
        await worker.handle(delivery(TrainRequest(request_id="small-8", agent_id="small")))
    await worker.stop()
    assert house.ledger == ["train small-7"]


async def test_a_trainer_for_one_request_waits_for_the_run_that_another_is_at(house: House) -> None:
    house.settings = TrainerSettings.read(adapters_dir=house.settings.adapters_dir, trainer_once=True)
    house.script("busy busy busy train")
    left = asyncio.Event()
    worker = house.worker(left.set)
    await worker.handle(delivery())

    await worker.start()
    async with asyncio.timeout(60):
        await left.wait()

    await worker.stop()
    assert house.job.announced
    assert house.ledger == [*["busy small-7"] * 3, "train small-7"]


async def test_a_run_that_was_begun_elsewhere_is_taken_up_with_a_word(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    job = house.jobs.record(REQUEST)
    with job.claim():
        job.begin("")

    with caplog.at_level("INFO"):
        async with house.running():
            await until(lambda: house.job.announced)

    assert any("run small-7 is taken up: begun 1 times" in record.getMessage() for record in caplog.records)


async def test_a_trainer_that_stays_does_not_leave(house: House) -> None:
    left = asyncio.Event()
    worker = house.worker(left.set)
    await worker.start()

    await settled(0.3)

    await worker.stop()
    assert not left.is_set()
