"""What the orchestrator counts: series of rare events are there, at 0, before the first of them."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from schemas.records.decision import DecisionDraft
from services.orchestrator import metrics


@pytest.mark.parametrize(
    ("name", "label", "value"),
    [
        ("ratchet_decisions_total", "move", "roll_back"),
        ("ratchet_trainings_total", "status", "failed"),
        ("ratchet_tasks_closed_total", "status", "expired"),
        ("ratchet_samples_unscored_total", "status", "infra_fail"),
    ],
)
def test_what_happens_rarely_is_counted_from_zero(name: str, label: str, value: str) -> None:
    labels = {"agent": f"new to {name}", label: value}
    assert REGISTRY.get_sample_value(name, labels) is None

    metrics.expect(labels["agent"])

    assert REGISTRY.get_sample_value(name, labels) == 0


def test_every_kind_of_move_is_expected() -> None:
    move = DecisionDraft.model_json_schema()["properties"]["move"]

    assert set(metrics.MOVES) == set(move["discriminator"]["mapping"])
