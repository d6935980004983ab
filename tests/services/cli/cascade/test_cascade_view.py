"""What `ratchet cascade show` and `ratchet status` say of a cascade."""

from __future__ import annotations

from schemas.api.cascade import CascadeEvidenceView, CascadeView
from services.cli.cascade import cascade_lines

EVIDENCE = CascadeEvidenceView(
    units=120, audited=40, difference=-0.0012, not_worse=3.5, worse=0.2, raise_at=40.0, fall_at=20.0
)
VIEW = CascadeView(
    agent_id="small",
    big="big",
    share=0.2,
    next_share=0.4,
    attempt=1,
    since=None,
    frozen=True,
    answered_by_small=300,
    answered_by_big=700,
    in_place=2,
    share_answered=0.3,
    small_cost=0.5,
    big_cost=7.0,
    big_alone=10.0,
    saved=2.5,
    spent_today=1.25,
    daily_cap=5.0,
    evidence=EVIDENCE,
)


def test_it_says_the_share_the_cost_and_the_evidence() -> None:
    assert cascade_lines(VIEW.model_dump(mode="json")) == [
        "small: may answer 20% of the tasks in place of big; frozen",
        "  answered: 300 of 1,000 (30%), 2 only because big did not",
        "  cost: small 0.5, big 7; big alone would have cost 10: 2.5 saved",
        "  today: 1.25 of 5",
        "  evidence: 120 units, 40 audited, mean difference -0.0012; for 40% e = 3.5 of 40, for harm e = 0.2 of 20",
    ]


def test_at_the_last_step_there_is_nothing_to_prove_but_harm() -> None:
    last = VIEW.model_copy(update={"next_share": None, "daily_cap": None, "big_alone": None, "saved": None})
    shown = cascade_lines(last.model_dump(mode="json"))
    assert shown[-1].endswith("mean difference -0.0012; for harm e = 0.2 of 20")
    assert "would have cost" not in "".join(shown)
