"""What users are served, by version, with its interval; the fleet's own tasks serve nobody."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from schemas.messages.work import Arm
from schemas.records.interaction import Interaction
from services.orchestrator.observation.served_quality import ServedQuality
from tests.ratchet.experiments.test_experiment_log import line, work


def group(sequence: int, *scores: float | None, experiment_id: str | None = None) -> list[Interaction]:
    of = work(sequence, arm=Arm(sequence=sequence, adapter_version="v1.0.7", experiment_id=experiment_id))
    return [line(of, index, score, response=f"{score}") for index, score in enumerate(scores)]


async def test_served_and_single_quality_are_told_by_version_with_an_interval() -> None:
    quality = ServedQuality()
    quality.add_closed_task(group(1, 0.2, 0.6))
    quality.add_closed_task(group(2, 1.0, 1.0))
    quality.add_closed_task(group(3, None, None))
    quality.add_closed_task(group(4, 0.0, 0.0, experiment_id="validation:small-v1.0.7-1"))

    (figure,) = quality.figures()
    await quality.refresh()

    assert (figure.agent_id, figure.adapter_version, figure.served.tasks) == ("small", "v1.0.7", 2)
    assert (figure.served.mean, figure.single.mean) == (pytest.approx(0.8), pytest.approx(0.7))
    assert figure.served.high == pytest.approx(0.8 + 1.959964 * 0.2)
    assert figure.distinct is not None
    assert figure.distinct.mean == 1.5
    labels = {"agent": "small", "adapter_version": "v1.0.7", "measure": "served", "statistic": "low"}
    assert REGISTRY.get_sample_value("ratchet_quality", labels) == pytest.approx(figure.served.low)


def test_of_one_task_there_is_no_interval() -> None:
    quality = ServedQuality()
    quality.add_closed_task(group(1, 0.5))

    (figure,) = quality.figures()

    assert (figure.served.low, figure.served.high, figure.distinct) == (None, None, None)
