"""A house whose runner is played by the test, with a mean score for each program."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.adapters.operator_service import OperatorService
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import REWARDS, ROLLOUTS_TOPIC
from schemas import Response, Work
from schemas.messages.runner_rollouts import DeclaredProgram, RunnerRollouts
from schemas.records.decision import TryProgram
from schemas.records.registry import AgentPrograms
from tests.services.orchestrator.house import answered, scored
from tests.services.orchestrator.learning_house import AGENT, LearningHouse
from tests.waiting import settled, until

QUICK = {"experiment_min_units_per_arm": 10, "watch_share": 0.0}


def revision(name: str, version: int = 1) -> str:
    return hashlib.sha256(f"{name} {version}".encode()).hexdigest()


def programs_file(folder: Path, more: str = "") -> Path:
    """Write the file of programs; the orchestrator reads it and loads none. `more`: lines on the agent."""
    file = folder / "programs.toml"
    file.write_text(f'[agents.{AGENT}]\nprograms = ["pair"]\n{more}')
    return file


class ProgramHouse(LearningHouse):
    """`programs`: name → mean score. All of them are in `has`, with their revisions, which the runner tells."""

    def __init__(self, folder: Path, programs: Mapping[str, float], **settings: Any) -> None:
        declared = programs_file(folder)
        super().__init__(folder, {"v1.0.0": 0.0}, programs=declared, **(QUICK | settings))
        self.means = dict(programs)
        self.has = {name: revision(name) for name in programs}
        self.refused = 0
        self.by_hand = OperatorService(self.store, AGENT, max_rank=64, operator="ann")

    async def tell(self, runner: str = "runner-1", has: Mapping[str, str] | None = None) -> None:
        """Broadcast what a runner reports every few seconds."""
        programs = tuple(
            DeclaredProgram(agent_id=AGENT, name=name, revision=sum_)
            for name, sum_ in (self.has if has is None else has).items()
        )
        message = RunnerRollouts(runner=runner, at_once=4, waiting=0, items=(), programs=programs)
        await self.bus.broadcast(ROLLOUTS_TOPIC, message.encode(), type=RunnerRollouts.TYPE, message_id="p")

    async def _answer(self, delivery: Delivery) -> None:
        """Answer by the program of the Work's arm; in another revision than asked for, its samples are lost."""
        work = Work.decode(delivery.body)
        name, pinned = (work.programs or (work.arm.program,))[0], work.arm.program_revision
        response = answered(work, f"a by {name}", f"b by {name}")
        if pinned is not None and self.has.get(str(name)) != pinned:
            self.refused += 1
            samples = tuple(one.model_copy(update={"status": "lost", "text": ""}) for one in response.samples)
        else:
            samples = tuple(one.model_copy(update={"program": name}) for one in response.samples)
        response = response.model_copy(update={"samples": samples})
        await self.bus.publish("responses", response.encode(), type="", message_id="x")

    async def _score(self, delivery: Delivery) -> None:
        response = Response.decode(delivery.body)
        scores = [
            None if one.status == "lost" else self._noisy(self.means.get(one.text.rpartition(" by ")[2], 0.5))
            for one in response.samples
        ]
        reward = scored(response, *scores).model_copy(update={"scorer": self.scorer})
        await self.bus.publish(REWARDS, reward.encode(), type="", message_id="w")

    @property
    def programs(self) -> AgentPrograms:
        return self.adapters.programs

    def standing(self, name: str) -> str:
        entry = self.programs.entries.get(name)
        return entry.state.value if entry else "unknown"

    async def becomes(self, name: str, state: str) -> None:
        """Wait for the state while the runner goes on reporting."""
        for _ in range(400):
            if self.standing(name) == state:
                await until(lambda: self.standing(name) != "canary" or self.is_trying)
                return
            await self.tell()
            await settled()
        raise AssertionError(f"{name} is {self.standing(name)}, not {state}")

    async def chosen(self, name: str) -> None:
        """Make the program answer by default, as an operator does."""
        self.by_hand.promote("programs", name, "it is what there is")
        await self.becomes(name, "stable")

    def try_program(self, name: str, reason: str) -> None:
        self.by_hand.decide(TryProgram(program=name), reason)


program_house = ProgramHouse
