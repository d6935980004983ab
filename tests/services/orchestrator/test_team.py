"""Two agents play the roles of a program: one role is changed at a time, judged by the outcome of the team's tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.operator_service import OperatorService
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import ADAPTER_REPORTS, ADAPTERS, REWARDS, events_topic
from ratchet.experiments.records import experiments
from ratchet.logs.rows import EvaluatedRow
from schemas import AdapterEvent, AdapterReport, AdapterTrained, Response, Task, Work
from schemas.messages.base import Metadata
from schemas.messages.response import Segment
from schemas.records.decision import Conclude, Promote, RollBack
from schemas.records.registry import AgentAdapters
from services.cli.eval.asking import Asking
from services.cli.experiment.command import check
from services.cli.programs.swap import CO_ADAPTED, compare_vectors, logged_tasks, swap_of, tasks_of
from tests.ratchet.adapters.making_adapters import published
from tests.services.orchestrator.house import answered, scored
from tests.services.orchestrator.learning_house import AGENT, LearningHouse
from tests.services.orchestrator.program_house import QUICK, programs_file
from tests.waiting import settled, until

PARTNER = "other"
BASE = "v1.0.0"


class TeamHouse(LearningHouse):
    """`means`: of a team's answers, by the versions of writer and mender. Both agents report what they have loaded."""

    def __init__(self, folder: Path, means: dict[tuple[str, str], float], more: str = "", **settings: Any) -> None:
        declared = programs_file(folder, f'roles = {{ writer = "{AGENT}", mender = "{PARTNER}" }}\n{more}')
        super().__init__(folder, {}, programs=declared, **(QUICK | settings))
        self.means = means
        self.told: dict[str, AdapterEvent] = {}

    async def open(self) -> None:
        await super().open()
        await self.bus.consume(f"work.{PARTNER}", self._answer, prefetch=16)
        for agent in (AGENT, PARTNER):
            await self.bus.listen(events_topic(agent), self._hear_of)

    def _hear_of(self, delivery: Delivery) -> None:
        if delivery.type == AdapterEvent.TYPE:
            event = AdapterEvent.decode(delivery.body)
            self.told[event.agent_id] = event

    async def report(self) -> None:
        for agent, event in list(self.told.items()):
            report = AdapterReport(
                agent_id=agent,
                replica=f"{agent}-1",
                revision=event.revision,
                announced_at=event.metadata.timestamp,
                loaded=tuple(adapter.version for adapter in event.adapters),
            )
            await self.bus.publish(ADAPTER_REPORTS, report.encode(), type=AdapterReport.TYPE, message_id="r")

    async def _answer(self, delivery: Delivery) -> None:
        work = Work.decode(delivery.body)
        played = " ".join(one.adapter_version for one in (work.arm.roles or {}).values())
        response = answered(work, f"a by {played}", f"b by {played}")
        response = response.model_copy(update={"adapter_version": work.arm.adapter_version})
        segments = tuple(
            Segment(
                prompt_ids=(1,),
                completion_ids=(4,),
                spans=((0, 1),),
                logprobs=(-0.5,),
                role=role,
                adapter_version=played.adapter_version,
            )
            for role, played in (work.arm.roles or {}).items()
        )
        if segments:
            samples = tuple(one.model_copy(update={"segments": segments}) for one in response.samples)
            response = response.model_copy(update={"samples": samples})
        await self.bus.publish("responses", response.encode(), type="", message_id="x")

    async def _score(self, delivery: Delivery) -> None:
        response = Response.decode(delivery.body)
        writer, _, mender = response.response.rpartition(" by ")[2].partition(" ")
        mean = self.means.get((writer, mender), 0.5)
        scores = [self._noisy(mean) for _ in response.samples]
        reward = scored(response, *scores).model_copy(update={"scorer": self.scorer})
        await self.bus.publish(REWARDS, reward.encode(), type="", message_id="w")

    def of(self, agent: str) -> AgentAdapters:
        return self.store.read().agent(agent)

    def followed(self, agent: str) -> AgentAdapters:
        """The registry's word on the agent, as the orchestrator goes by it."""
        return self.orchestrator.parts.promoters[agent].arms.adapters

    async def trains(self, agent: str, seed: int = 1) -> str:
        folder = published(self.folder / "adapters", agent, seed=seed)
        message = AdapterTrained(
            request_id=f"run-{agent}-{folder.name}",
            agent_id=agent,
            status="trained",
            metadata=Metadata(),
            adapter_version=folder.name,
            adapter_sha256=adapter_sha256(folder),
        )
        await self.bus.publish(ADAPTERS, message.encode(), type=AdapterTrained.TYPE, message_id="t")
        return folder.name

    async def becomes(self, agent: str, version: str, state: str) -> None:
        """Wait for the state, while replicas report."""
        for _ in range(400):
            entry = self.of(agent).versions.get(version)
            if entry is not None and entry.state.value == state:
                await until(lambda: self.followed(agent).versions[version].state.value == state)
                return
            await self.report()
            await settled()
        raise AssertionError(f"{agent} {version} does not become {state}: {self.of(agent).versions.get(version)}")

    def by_hand(self, agent: str) -> OperatorService:
        return OperatorService(self.store, agent, max_rank=64, operator="ann")

    def moves(self, agent: str, kind: type[Any]) -> list[Any]:
        """The moves of that kind, with the reason of each."""
        decisions = [line.decision for line in self.store.ledger.read()]
        return [(one.move, one.reason) for one in decisions if one.agent_id == agent and isinstance(one.move, kind)]


team_house = TeamHouse


async def test_a_role_is_promoted_by_the_outcome_of_the_teams_tasks_and_only_it_differs_between_the_arms(
    tmp_path: Path,
) -> None:
    async with team_house(tmp_path, {(BASE, BASE): 0.4, (BASE, "v1.0.1"): 0.8}) as house:
        version = await house.trains(PARTNER)
        await house.becomes(PARTNER, version, "canary")

        await house.traffic(stop_when=lambda: house.of(PARTNER).primary == version)

        tried = [
            line for line in house.logged() if line.arm.experiment_id and "validation" not in line.arm.experiment_id
        ]
        assert {line.agent_id for line in tried} == {AGENT}
        assert {
            (line.arm.is_candidate, *(one.adapter_version for one in (line.arm.roles or {}).values())) for line in tried
        } == {(False, BASE, BASE), (True, BASE, version)}
        assert {line.adapter_version for line in tried} == {BASE}
        # and the verdict can be checked from the logs, bit for bit
        (record,) = experiments(line.decision for line in house.store.ledger.read())
        assert check(record, house.folder).difference is None


async def test_one_role_is_tried_at_a_time_and_a_change_of_its_partner_makes_what_it_showed_void(
    tmp_path: Path,
) -> None:
    async with team_house(tmp_path, {}) as house:
        version = await house.trains(PARTNER)
        await house.becomes(PARTNER, version, "canary")
        other = await house.trains(AGENT)
        await house.becomes(AGENT, other, "validated")
        await house.traffic(stop_when=lambda: house.submitted >= 40)
        assert house.of(AGENT).experiment is None

        house.by_hand(AGENT).promote("adapters", other, "sure of it")
        await house.becomes(PARTNER, version, "aborted")

        ((move, reason),) = house.moves(PARTNER, Conclude)
        assert (move.verdict, reason) == (
            "aborted",
            "role writer is played by v1.0.1 now, and was by v1.0.0 when it began: what it showed is void",
        )


async def test_what_was_proved_beside_a_version_is_rolled_back_with_it(tmp_path: Path) -> None:
    means = {(BASE, BASE): 0.2, ("v1.0.1", BASE): 0.5, ("v1.0.1", "v1.0.1"): 0.8}
    async with team_house(tmp_path, means) as house:
        for agent in (AGENT, PARTNER):  # the writer first, then the mender beside it
            version = await house.trains(agent)
            await house.becomes(agent, version, "canary")
            await house.traffic(stop_when=lambda agent=agent: house.of(agent).primary != BASE)

        house.by_hand(AGENT).roll_back("adapters", "v1.0.1", "users complain")
        await house.becomes(PARTNER, "v1.0.1", "rolled_back")

        assert (house.of(AGENT).primary, house.of(PARTNER).primary) == (BASE, BASE)
        ((_, reason),) = house.moves(PARTNER, RollBack)
        assert reason == "it was proved beside small v1.0.1, which was rolled back"
        assert len(house.moves(PARTNER, Promote)) == 1


async def test_tasks_of_a_partner_itself_are_in_no_experiment(tmp_path: Path) -> None:
    async with team_house(tmp_path, {}) as house:
        version = await house.trains(PARTNER)
        await house.becomes(PARTNER, version, "canary")

        for number in range(20):
            await house.submit(Task(task_id=f"own-{number}", input="x", agent_id=PARTNER))
        await until(lambda: len(house.bus.deliveries_published("results")) >= 20)

        lines = [line for line in house.logged() if line.task_id.startswith("own-")]
        assert {(line.adapter_version, line.arm.experiment_id, line.arm.roles) for line in lines} == {
            (BASE, None, None)
        }


async def test_the_role_that_was_changed_last_is_watched(tmp_path: Path) -> None:
    means = {(BASE, BASE): 0.2, ("v1.0.1", BASE): 0.5, ("v1.0.1", "v1.0.1"): 0.8}
    async with team_house(tmp_path, means, watch_share=0.05) as house:
        for agent in (AGENT, PARTNER):
            version = await house.trains(agent)
            await house.becomes(agent, version, "canary")
            await house.traffic(stop_when=lambda agent=agent: house.of(agent).watch is not None)

        await until(lambda: house.of(AGENT).watch is None)
        assert house.of(PARTNER).watch is not None and house.of(PARTNER).watch.partners == {"writer": "v1.0.1"}


async def test_no_training_is_asked_for_a_role_that_is_not_to_be_trained(tmp_path: Path) -> None:
    async with team_house(tmp_path, {}, more='trained = ["writer"]\n', train_after_groups=5) as house:
        wanted = {agent: house.orchestrator.parts.promoters[agent].training.wanted for agent in (AGENT, PARTNER)}

    assert wanted == {AGENT: 5, PARTNER: 0}


async def test_each_vector_of_a_swap_test_is_answered_by_the_versions_that_it_names(tmp_path: Path) -> None:
    means = {(BASE, BASE): 0.2, ("v1.0.1", BASE): 0.5, (BASE, "v1.0.1"): 0.2, ("v1.0.1", "v1.0.1"): 0.8}
    async with team_house(tmp_path, means) as house:
        for agent in (AGENT, PARTNER):
            version = await house.trains(agent)
            await house.becomes(agent, version, "canary")
            await house.traffic(stop_when=lambda agent=agent: house.of(agent).primary != BASE)
        for number in range(20):
            await house.submit(Task(task_id=f"user-{number}", input=f"sort {number}"))
        await until(lambda: sum(line.task_id.startswith("user-") for line in house.logged()) == 40)

        swap = swap_of(house.store.read(), {"writer": AGENT, "mender": PARTNER})
        asking = Asking("swap-1", AGENT, 2, 600.0)
        asked = tasks_of(swap, logged_tasks(house.folder, AGENT, 20), asking)
        for one in asked.values():
            await house.submit(one.make())
        await until(lambda: {line.task_id for line in house.logged()} >= asked.keys())

        lines: dict[str, list[EvaluatedRow]] = {task_id: [] for task_id in asked}
        played: dict[str, set[tuple[str, ...]]] = {name: set() for name in swap.vectors}
        for line in house.logged():
            if line.task_id in asked and line.arm.roles is not None:
                lines[line.task_id].append(EvaluatedRow(line.task_id, score=line.score))
                versions = tuple(one.adapter_version for one in line.arm.roles.values())
                played[asked[line.task_id].name].add(versions)
        assert played == {name: {tuple(vector.values())} for name, vector in swap.vectors.items()}
        assert len(played) == 4
        assert compare_vectors(swap, asked, lines).sentence == CO_ADAPTED
