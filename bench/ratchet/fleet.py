"""The fleet of the bench: every service as it is, and one process less for each; in the broker's place is memory.

Orchestrator, agent, scorer, auditor and trainer are the product's own, with their logs, ledger and adapters on disk;
model and training have processes of their own, as always. Only the scorers' strategies are the bench's, and what takes
days takes seconds: anchors are checked every ANCHOR_EVERY_S.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.ratchet.judge import Auditor, Judge
from bench.ratchet.tasks import Problem
from ratchet.adapters.operator_service import OperatorService
from ratchet.adapters.registry import RegistryStore
from ratchet.bus.topology import FEEDBACK, TASKS, topology_of
from ratchet.runs.store import RunStore
from ratchet.runtime.runner import Service
from schemas.messages.feedback import Feedback
from schemas.messages.result import Result
from schemas.messages.task import Task
from schemas.messages.training import AdapterTrained
from schemas.records.decision import Trust
from schemas.records.registry import AgentAdapters
from services.agent.engines.installed import make_engine
from services.agent.settings import AgentSettings
from services.agent.worker import AgentWorker
from services.orchestrator.orchestrator import Orchestrator
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.tasks.adaptive_samples import SamplesState
from services.scorer.settings import ScorerSettings
from services.scorer.worker import ScorerWorker
from services.trainer.settings import TrainerSettings
from services.trainer.worker import TrainerWorker
from tests.memory_bus import MemoryBus

AGENT = "small"
REPLIES = "users"
ANCHOR_EVERY_S = 6.0
LEARNING_RATE = 3e-4
"""A third of the default, by which the first training takes nearly all that is to be had: nineteen rounds would show no
more."""
DEADLINE_S = 60
"""The open tasks of a killed command are lost with its bus, and delay a verdict for so long after it goes on."""
OPEN = 96
"""Tasks that users have open at a time."""
POLL_S = 0.1
LOOK_EVERY = 10
"""Polls between two looks at the registry."""
GRACE_S = 30.0


def settings(folder: Path, model: Path) -> dict[str, str]:
    """Return the fleet's settings as environment variables: defaults, except what makes twenty rounds take minutes."""
    return {
        "RATCHET_LOGS_DIR": str(folder / "logs"),
        "RATCHET_ADAPTERS_DIR": str(folder / "adapters"),
        "RATCHET_AGENT_MODEL": str(model),
        "RATCHET_TRAINER_MODEL": str(model),
        "RATCHET_AGENT_DEVICE": "cpu",
        "RATCHET_TRAINER_DEVICE": "cpu",
        "RATCHET_AGENT_MAX_BATCH": "256",
        "RATCHET_AUDITOR": "verifier:exact",
        "RATCHET_MAX_TOKENS": "24",
        "RATCHET_TASK_DEADLINE_S": str(DEADLINE_S),
        "RATCHET_ADAPTIVE_SAMPLES": "1",
        "RATCHET_TRAIN_AFTER_GROUPS": "192",
        "RATCHET_TRAINER_HYPERPARAMETERS": json.dumps({"max_groups": 256, "learning_rate": LEARNING_RATE}),
        "RATCHET_EXPERIMENT_MIN_AGE_S": "0",
        "RATCHET_ANCHOR_EVERY_S": str(ANCHOR_EVERY_S),
        "RATCHET_RESTART_STALLED_S": "0",
    }


class Fleet:
    """Open; its users ask with `ask`."""

    def __init__(self, bus: MemoryBus, orchestrator: Orchestrator, read: OrchestratorSettings, judge: Judge) -> None:
        self._bus = bus
        self.orchestrator = orchestrator
        self.judge = judge
        self.store = RegistryStore.from_settings(read)
        self._runs = RunStore(read.adapters_dir)
        self._rank = read.adapter_max_rank
        self._replies = bus.open_reply_queue(REPLIES)

    @property
    def adapters(self) -> AgentAdapters:
        return self.store.read().agent(AGENT)

    def folder(self, version: str) -> Path | None:
        """The folder of a version; None for the base model, and where it is gone."""
        entry = self.adapters.versions[version]
        return self.store.folder / entry.folder if entry.folder else None

    @property
    def ended_runs(self) -> dict[str, AdapterTrained]:
        """Outcomes of the runs that the orchestrator was told of, by id."""
        runs = ((run.path.name, run.outcome) for run in self._runs.folders() if run.announced)
        return {name: outcome for name, outcome in runs if outcome is not None}

    @property
    def samples(self) -> SamplesState:
        """The number of answers proved to be enough, and what that has saved so far."""
        note = self.orchestrator.ledger.index.note(f"samples/{AGENT}")
        return msgspec.json.decode(note, type=SamplesState) if note else SamplesState()

    def reanchor(self) -> None:
        """Trust the judge anew, as `ratchet adapters reanchor` does: all else needs no person."""
        service = OperatorService(self.store, AGENT, self._rank, "operator:bench")
        service.decide(
            Trust(anchor_anew=True), "the judge was changed on purpose; its scores are the measure from now on"
        )

    async def ask(
        self,
        problems: Callable[[], tuple[str, Problem]],
        ended: Callable[[int], bool],
        heard: Callable[[Result], list[Feedback]],
    ) -> int:
        """Let users ask until `ended(number of tasks)` is true; `heard` returns their feedback on a result.

        They rest while a training runs: it waits for nothing of theirs. Returns the number of tasks, once all are
        answered.
        """
        asked = answered = looks = 0
        over = resting = False
        while not over or answered < asked:
            while self._replies:
                answered += 1
                for feedback in heard(Result.decode(self._replies.popleft().body)):
                    body = feedback.encode()
                    await self._bus.publish(FEEDBACK, body, type=Feedback.TYPE, message_id=str(feedback.feedback_id))
            while not over and not resting and asked - answered < OPEN:
                await self._submit(*problems())
                asked += 1
            await asyncio.sleep(POLL_S)
            looks += 1
            if not over and looks % LOOK_EVERY == 0:
                over = await asyncio.to_thread(ended, asked)
                resting = await asyncio.to_thread(self._runs.unfinished_runs) != []
        return asked

    async def _submit(self, task_id: str, problem: Problem) -> None:
        task = Task(task_id=task_id, input=problem.input, reference=problem.answer, task_type=problem.family)
        await self._bus.publish(
            TASKS, task.encode(), type=Task.TYPE, message_id=task_id, reply_to=REPLIES, correlation_id=task_id
        )


@asynccontextmanager
async def fleet(folder: Path, model: Path, seed: int) -> AsyncIterator[Fleet]:
    """Start the fleet from what is on disk; RATCHET_ variables must be those of `settings`."""
    read = OrchestratorSettings.read()
    bus = MemoryBus(topology_of(read), remembers=0)
    judge = Judge(seed)
    orchestrator = Orchestrator(read, bus)
    agent = AgentSettings.read()
    services: list[Service] = [
        orchestrator,
        ScorerWorker(ScorerSettings.read(), bus, judge),
        ScorerWorker(ScorerSettings.read(scorer_audits=True), bus, Auditor(seed + 1)),
        TrainerWorker(TrainerSettings.read(), bus),
        AgentWorker(agent, bus, make_engine(agent)),
    ]
    await bus.start()
    try:
        for service in services:
            await service.start()
            for one in service.subscriptions():
                await bus.consume(one.queue, one.handler, prefetch=one.prefetch, stalled_after_s=one.stalled_after_s)
        yield Fleet(bus, orchestrator, read, judge)
    finally:
        await bus.stop(GRACE_S)
        for service in reversed(services):
            await service.stop()


def set_environment(variables: Mapping[str, str]) -> None:
    """Set these and no other settings of ours, for this process and those it starts."""
    for name in [name for name in os.environ if name.startswith("RATCHET_")]:
        del os.environ[name]
    os.environ.update(variables)
