"""The time from a decision for a new primary to its first answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from prometheus_client import REGISTRY

from schemas.messages.work import Arm, Sampling, Work
from schemas.records.interaction import Interaction, Latencies
from services.orchestrator.promotion.replicas import SwapClock

DECIDED = datetime(2031, 1, 1, tzinfo=UTC)


def admitted(version: str, seconds: float) -> Work:
    """So long after the decision."""
    at = DECIDED + timedelta(seconds=seconds)
    return Work(
        task_id="t",
        input="x",
        agent_id="clocked",
        deadline=at + timedelta(hours=1),
        admitted_at=at,
        arm=Arm(sequence=0, adapter_version=version),
        sampling=Sampling(),
    )


def answered(work: Work) -> list[Interaction]:
    """0.2 s in the queue, 0.5 s generating; what the scorer takes is not the agent's."""
    line = {
        "task_id": work.task_id,
        "input": work.input,
        "response": "a",
        "score": 1.0,
        "agent_id": work.agent_id,
        "adapter_version": work.arm.adapter_version,
        "timestamp": work.admitted_at,
        "metadata": {},
        "sample": 0,
        "group_size": 1,
        "arm": work.arm,
        "sampling": work.sampling,
        "latencies": Latencies(queue_s=0.2, generate_s=0.5, score_queue_s=3.0, score_s=4.0, total_s=7.7),
    }
    return [Interaction.model_validate(line)]


def measured() -> float | None:
    return REGISTRY.get_sample_value("ratchet_swap_seconds", {"agent": "clocked"})


def test_the_first_answer_of_the_new_primary_to_a_later_task_stops_the_clock() -> None:
    clock = SwapClock("clocked")
    clock.began("v1.0.1", DECIDED)

    for work in (admitted("v1.0.0", 0.1), admitted("v1.0.1", -0.1)):
        clock.note_answer(work, answered(work))
    assert measured() is None

    for seconds in (0.3, 5.0):
        work = admitted("v1.0.1", seconds)
        clock.note_answer(work, answered(work))

    value = measured()
    assert value is not None and abs(value - 1.0) < 1e-6
