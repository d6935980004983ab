"""The outcome of a unit by its logged routing (ratchet/experiments/cascade_trial.py)."""

from __future__ import annotations

import pytest

from ratchet.experiments.cascade import Pair
from ratchet.experiments.cascade_trial import CascadeTrial, replay_cascade
from schemas.records.cascade import BigAnswer, CascadeCut, CascadePlanRecord, CascadeState, Routing

STATE = CascadeState(
    big="big",
    small="v1.0.0",
    plan=CascadePlanRecord(),
    step=0,
    attempt=1,
    cut=CascadeCut(score=2.0, share_at=0.0),
    positions={},
    draw_id="draws",
)
ANSWER = BigAnswer(
    task_id="cascade/t", agent_id="big", adapter_version="v1.0.0", response="x", score=0.5, teaches=False
)
LOST = 0.5, 0.9
"""Scores of a judged pair."""


def unit(to: str, *, is_audited: bool, big: BigAnswer | None) -> Routing:
    return Routing.model_validate(
        {"order": 0, "score": 0.5, "to": to, "is_unit": True, "is_audited": is_audited, "big": big, "served": "small"}
        | {"tested": {"score": 0.9, "share_at": 0.0}}
    )


def replayed(routing: Routing) -> CascadeTrial:
    trial = replay_cascade(STATE, "", [routing], {0: Pair(*LOST)})
    assert trial.observe() is None
    return trial


@pytest.mark.parametrize(
    ("routing", "units", "audited"),
    [
        (unit("big", is_audited=False, big=ANSWER), 1, 0),
        (unit("big", is_audited=True, big=ANSWER), 1, 1),
        (unit("small", is_audited=False, big=None), 1, 0),
        (unit("small", is_audited=True, big=None), 1, 1),
        (unit("big", is_audited=False, big=None), 0, 0),
        (unit("big", is_audited=True, big=None), 0, 0),
    ],
    ids=["alike", "judged", "small at both", "judged beside", "big failed", "big failed, audited"],
)
def test_a_unit_that_the_big_model_failed_to_answer_is_left_out(routing: Routing, units: int, audited: int) -> None:
    evidence = replayed(routing).cascade.evidence
    assert (evidence.units, evidence.audited) == (units, audited)
