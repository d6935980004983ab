"""The cost of a cascade: reserved before the big model is asked, settled by what it took."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Literal

import pytest

from ratchet.service.prices import AgentPrices
from schemas import Interaction, Work
from schemas.messages.response import Usage
from schemas.messages.work import Sampling
from services.orchestrator.cascade.spending import Spending
from services.orchestrator.tasks.settlement import ending
from tests.making_work import work as made_work
from tests.services.trainer.making_logs import line

MONDAY, TUESDAY = date(2026, 1, 5), date(2026, 1, 6)
DEAR = AgentPrices(prompt=Decimal(0), sampled=Decimal(1_000_000), samples=1, max_tokens=10)
"""One a sampled token."""


def work(max_tokens: int = 10) -> Work:
    return made_work("t", Sampling(max_tokens=max_tokens))


def lines(sampled: int | None) -> list[Interaction]:
    usage = Usage(calls=1, prompt_tokens=5, sampled_tokens=sampled) if sampled is not None else None
    return [Interaction.decode(line("big", 0, usage=usage, completion_ids=None, logprobs=None))]


def test_what_could_be_too_much_is_not_asked_for() -> None:
    spending = Spending(None, DEAR, cap=25.0)
    for number in range(2):
        assert spending.has_room(f"big-{number}", work(), MONDAY)
        spending.reserve(f"big-{number}", work())
    assert not spending.has_room("big-2", work(), MONDAY), "two times ten are reserved"
    assert spending.has_room("big-1", work(), MONDAY), "ten of them for this one: it was not asked yet, maybe"

    spending.settle("big-0", lines(3), MONDAY)
    assert spending.has_room("big-2", work(), MONDAY), "it took three"
    assert spending.spent_on(MONDAY) == 3.0
    assert spending.spent_on(TUESDAY) == 0.0


def test_a_server_that_says_nothing_of_tokens_is_taken_at_the_most_that_was_reserved() -> None:
    spending = Spending(None, DEAR)
    spending.reserve("big", work(7))
    spending.settle("big", lines(None), MONDAY)
    assert spending.totals.big_cost == 7.0


@pytest.mark.parametrize(("status", "booked"), [("expired", 7.0), ("cancelled", 7.0), ("failed", 0.0)])
def test_an_answer_that_may_still_come_is_taken_at_the_most_and_a_refusal_costs_nothing(
    status: Literal["expired", "cancelled", "failed"], booked: float
) -> None:
    spending = Spending(None, DEAR)
    spending.reserve("big", work(7))
    spending.settle("big", [ending(work(7), status, "why", datetime(2026, 1, 5, tzinfo=UTC))], MONDAY)
    assert spending.spent_on(MONDAY) == booked
    assert spending.totals.big_cost == 0.0, "the mean price of an answer is of those that came"


def test_the_big_model_alone_is_taken_to_cost_its_mean_price_on_every_task() -> None:
    spending = Spending(None, DEAR)
    assert spending.big_alone is None
    for sampled in (2, 4):
        spending.settle("big", lines(sampled), MONDAY)
    for served in ("small", "small", "big", "big", "big"):
        spending.add_served(served, in_place=False)
    assert spending.big_alone == pytest.approx(15.0)


def test_totals_survive_a_restart() -> None:
    spending, again = Spending(None, DEAR), Spending(None, DEAR)
    spending.settle("big", lines(2), MONDAY)
    again.take_up(spending.note())
    assert again.totals == spending.totals
