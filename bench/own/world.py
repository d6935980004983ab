"""A fleet's log for each family and seed, trainings from it as the trainer does them, and the held-out measure.

The log is written as the fleet writes it: groups by the base model, scored by the family's scorer, which also scores
the reference as an answer. Trainings are whole runs of the trainer, refusals included.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from bench.own.families import Family, OwnTask
from bench.sampling import sample_answers
from ratchet.runs.store import RunStore
from schemas.messages.base import Metadata
from schemas.messages.reward import ScorerIdentity
from schemas.messages.training import AdapterTrained, TrainRequest
from schemas.messages.work import BASE_VERSION, Arm, Sampling
from schemas.records.interaction import Interaction, Latencies
from services.agent.engines.engine import Generation
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import check_spec, strategy_of
from services.scorer.strategies.strategy import Answer, ScoringRequest
from services.trainer.settings import TrainerSettings
from services.trainer.train import do_run

AGENT = "own"
TEMPERATURE = 0.7
"""The temperature of the fleet's answers, and of those that are measured."""
AT_ONCE = 64
NO_LATENCIES = Latencies(queue_s=0, generate_s=0, score_queue_s=0, score_s=0, total_s=0)


def scores_of(family: Family, tasks: Sequence[OwnTask], answers: Sequence[Sequence[str]]) -> list[list[float]]:
    strategy = strategy_of(check_spec(family.scorer), ScorerSettings())

    async def score_all() -> list[list[float]]:
        found = []
        for task, given in zip(tasks, answers, strict=True):
            request = ScoringRequest("t", task.input, tuple(map(Answer, given)), task.reference)
            found.append([one.score or 0.0 for one in await strategy.score(request)])
        return found

    return asyncio.run(score_all())


def answer(
    model: str, tasks: Sequence[OwnTask], sampling: Sampling, seed: int, adapter: Path | None = None
) -> tuple[list[Generation], str]:
    """The answers to each task, and the name of the engine that gave them."""
    return sample_answers(model, [one.input for one in tasks], sampling, seed, adapter, AT_ONCE)


def write_log(logs: Path, model: str, family: Family, tasks: Sequence[OwnTask], each: int, seed: int) -> None:
    """A log, with the CPU-seconds that the answers took in a file beside it.

    `each`: answers a task; 0 for a log whose answers nobody learns from: one a task, of one token.
    """
    began = time.process_time()
    sampling = Sampling(n=each or 1, temperature=TEMPERATURE, max_tokens=family.max_tokens if each else 1)
    answers, engine = answer(model, tasks, sampling, seed)
    seconds = time.process_time() - began
    scores = scores_of(family, tasks, [[one.text for one in given.samples] for given in answers])
    references = scores_of(family, tasks, [[task.reference] for task in tasks])
    now = datetime.now(UTC)
    unfinished = logs.with_suffix(".tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    (unfinished / "seconds.json").write_text(json.dumps(seconds))
    with (unfinished / "agent_interactions.jsonl").open("wb") as log:
        for number, (task, given, marks, (of_reference,)) in enumerate(
            zip(tasks, answers, scores, references, strict=True)
        ):
            for place, (sample, score) in enumerate(zip(given.samples, marks, strict=True)):
                line = Interaction(
                    task_id=f"{family.name}-{number}",
                    input=task.input,
                    response=sample.text,
                    score=score,
                    score_status="ok",
                    agent_id=AGENT,
                    adapter_version=BASE_VERSION,
                    timestamp=now,
                    metadata=Metadata(),
                    sample=place,
                    group_size=sampling.n,
                    arm=Arm(sequence=number),
                    prompt_ids=given.prompt_ids,
                    completion_ids=sample.completion_ids,
                    logprobs=sample.logprobs,
                    finish_reason=sample.finish_reason,
                    sampling=sampling,
                    reference=task.reference,
                    reference_score=of_reference,
                    engine=engine,
                    scorer=ScorerIdentity(id=family.scorer, revision="1"),
                    latencies=NO_LATENCIES,
                )
                log.write(line.encode() + b"\n")
    unfinished.rename(logs)


def train(
    logs: Path, adapters: Path, model: str, algorithm: str, hyperparameters: dict[str, Any], seed: int
) -> tuple[AdapterTrained, Path | None]:
    """Return how the run ended, and the adapter's folder where it made one."""
    settings = TrainerSettings.read(
        logs_dir=logs,
        adapters_dir=adapters,
        trainer_model=model,
        trainer_device="cpu",
        trainer_dtype="float32",
        trainer_threads=torch.get_num_threads(),
        replay_share=0.0,
    )
    request = TrainRequest(
        request_id="run", agent_id=AGENT, algorithm=algorithm, hyperparameters=hyperparameters, seed=seed
    )
    outcome = do_run(settings, RunStore(adapters).record(request), lambda event: None)
    assert outcome is not None
    return outcome, adapters / AGENT / outcome.adapter_version if outcome.adapter_version else None


def measure(
    model: str, family: Family, tasks: Sequence[OwnTask], each: int, seed: int, adapter: Path | None
) -> list[float]:
    """Answer held-out tasks, each so often, and return the shares that are exactly right."""
    sampling = Sampling(n=each, temperature=TEMPERATURE, max_tokens=family.max_tokens)
    answers, _ = answer(model, tasks, sampling, 90_000 + seed, adapter)
    marks = scores_of(family, tasks, [[one.text for one in given.samples] for given in answers])
    return [sum(mark >= 1.0 for mark in of_task) / each for of_task in marks]


def with_references(plain: Path, target: Path, family: Family, tasks: Sequence[OwnTask]) -> Path:
    """The same answers in another folder, scored by the references of these tasks."""
    target.mkdir(parents=True, exist_ok=True)
    by_id = {f"{family.name}-{number}": task for number, task in enumerate(tasks)}
    lines = [Interaction.decode(line) for line in (plain / "agent_interactions.jsonl").read_bytes().splitlines()]
    own = [by_id[line.task_id] for line in lines]
    marks = scores_of(family, own, [[line.response or ""] for line in lines])
    worth = scores_of(family, own, [[task.reference] for task in own])
    with (target / "agent_interactions.jsonl").open("wb") as log:
        for line, task, (score,), (of_reference,) in zip(lines, own, marks, worth, strict=True):
            changed = {"reference": task.reference, "score": score, "reference_score": of_reference}
            log.write(line.model_copy(update=changed).encode() + b"\n")
    return target
