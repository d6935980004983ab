"""What the orchestrator counts: series of rare events are there, at 0, before the first of them."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from schemas.messages.work import Arm
from schemas.records.decision import DecisionDraft
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.observation.overview import closed_by_status, stage_buckets
from tests.services.trainer.making_logs import line


@pytest.mark.parametrize(
    ("name", "label", "value"),
    [
        ("ratchet_decisions_total", "move", "roll_back"),
        ("ratchet_trainings_total", "status", "failed"),
        ("ratchet_tasks_closed_total", "status", "expired"),
        ("ratchet_objective_missed_total", "objective", "availability"),
        ("ratchet_samples_unscored_total", "status", "infra_fail"),
    ],
)
def test_what_happens_rarely_is_counted_from_zero(name: str, label: str, value: str) -> None:
    labels = {"agent": f"new to {name}", label: value}
    assert REGISTRY.get_sample_value(name, labels) is None

    metrics.expect(labels["agent"])

    assert REGISTRY.get_sample_value(name, labels) == 0


def test_the_first_task_of_an_agent_is_an_increase() -> None:
    """RatchetNothingAnswered compares rates: a series that begins at 1 has none."""
    metrics.expect("never asked")

    assert REGISTRY.get_sample_value("ratchet_tasks_admitted_total", {"agent": "never asked"}) == 0


def test_every_kind_of_move_is_expected() -> None:
    move = DecisionDraft.model_json_schema()["properties"]["move"]

    assert set(metrics.MOVES) == set(move["discriminator"]["mapping"])


def test_what_users_are_told_leaves_out_the_fleets_own_tasks() -> None:
    users = Interaction.decode(line("t", 0))
    own = Interaction.decode(line("golden/t", 0, arm=Arm(sequence=1, experiment_id="validation:small-1")))
    before, waited = closed_by_status().get("ok", 0), stage_buckets()["total"][float("inf")]

    for one in (users, own, own):
        metrics.count_closed("small", "ok", own=one is own)
        metrics.count_samples([one])

    assert closed_by_status()["ok"] == before + 1
    assert stage_buckets()["total"][float("inf")] == waited + 1
