"""The way of an adapter through a fleet of processes: proved by live traffic, promoted, or sent away."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.registry import RegistryStore
from ratchet.experiments.records import experiments
from schemas.messages.training import AdapterTrained
from schemas.records.decision import Decision, Promote
from schemas.records.registry import AgentAdapters
from services.cli.experiment.command import check
from tests.acceptance.fleet import ORCHESTRATOR, Fleet
from tests.acceptance.ledger import Ledger
from tests.acceptance.loops import DECIDES_SOON
from tests.acceptance.scoring import scored
from tests.acceptance.traffic import Traffic, traffic
from tests.ratchet.adapters.making_adapters import published

pytestmark = pytest.mark.broker

AGENT = "small"
PROMOTION = 4
"""The decisions about a version: register, validate, start_experiment, promote."""
STEPS_OF_A_PROMOTION = ("decision-written", "decision-synced", "registry-written", "registry-renamed")


class House:
    """A fleet whose adapters are made here, and its users."""

    def __init__(self, fleet: Fleet, users: Traffic) -> None:
        self.fleet = fleet
        self.users = users
        self.store = RegistryStore(fleet.folder / "adapters")

    @property
    def adapters(self) -> AgentAdapters:
        return self.store.read().agent(AGENT)

    @property
    def decisions(self) -> list[Decision]:
        return [decision for decision, _ in self.store.ledger.read()]

    def is_(self, version: str, state: str) -> Callable[[], bool]:
        def check() -> bool:
            entry = self.adapters.versions.get(version)
            return entry is not None and entry.state == state

        return check

    async def train(self, seed: int) -> str:
        """An adapter is published, and the fleet hears of it as from a trainer."""
        folder = published(self.store.folder, AGENT, seed=seed, parent=self.adapters.primary)
        message = AdapterTrained(
            request_id=f"run-{folder.name}",
            agent_id=AGENT,
            status="trained",
            adapter_version=folder.name,
            adapter_sha256=adapter_sha256(folder),
        )
        await self.users.send("adapters", message.encode())
        return folder.name

    def complaints(self) -> list[str]:
        """What is wrong in the books of users, logs and answers; nothing should be."""
        ledger = Ledger(
            attempted=self.users.asked,
            acknowledged=self.users.asked,
            answers=Counter(self.users.answered.keys()),
            not_ok=self.users.not_ok,
        )
        ledger.read_logs(self.fleet.logs)
        return ledger.complaints()

    def restart_orchestrator(self, failpoint: str = "") -> None:
        self.fleet[ORCHESTRATOR].kill()
        self.fleet[ORCHESTRATOR].start({"RATCHET_FAILPOINT": failpoint})


@pytest.fixture
async def open_house(
    start_fleet: Callable[..., Fleet],
) -> AsyncIterator[Callable[[dict[str, float]], Awaitable[House]]]:
    """`await open_house({version: mean score of its answers})`."""
    async with AsyncExitStack() as stack:

        async def start_house(quality: dict[str, float]) -> House:
            fleet = start_fleet(environment=DECIDES_SOON | scored(quality))
            stack.callback(fleet.kill)
            return House(fleet, await stack.enter_async_context(traffic(fleet)))

        yield start_house


Opener = Callable[[dict[str, float]], Awaitable[House]]


@pytest.mark.timeout(300)
async def test_a_kill_at_any_step_of_a_promotion_leaves_one_primary_and_loses_nothing(open_house: Opener) -> None:
    quality = {"v1.0.0": 0.15, "v1.0.1": 0.3, "v1.0.2": 0.45, "v1.0.3": 0.6, "v1.0.4": 0.75}
    house = await open_house(quality)
    orchestrator = house.fleet[ORCHESTRATOR]
    await house.users.until(lambda: len(house.users.answered) >= 50)  # so that the anchors are taken already

    for seed, step in enumerate(STEPS_OF_A_PROMOTION, 1):
        house.restart_orchestrator(f"{step}:{PROMOTION}")
        version = await house.train(seed)
        await house.users.until(lambda: orchestrator.exit_code is not None)
        assert orchestrator.exit_code == -signal.SIGKILL
        assert house.adapters.primary in (version, f"v1.0.{seed - 1}")

        orchestrator.start()
        await house.users.until(house.is_(version, "stable"))
        assert house.adapters.primary == version
    await house.users.rest()

    promoted = [d.move.version for d in house.decisions if isinstance(d.move, Promote)]
    assert promoted == ["v1.0.1", "v1.0.2", "v1.0.3", "v1.0.4"]
    assert house.complaints() == []
    records = experiments(house.decisions)
    assert [record.outcome for record in records] == ["promoted"] * 4
    assert [check(record, house.fleet.logs).difference for record in records] == [None] * 4
