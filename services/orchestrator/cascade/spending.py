"""The cost of a cascade: what was spent on each of the two models, today on the big one, and what all would have cost.

In the currency of the prices. The big model alone is taken to cost its mean price on every task. Totals survive a kill
but for the last half second, and do not survive the loss of the index: the log has the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date

import msgspec

from ratchet.logs.best_answer import usage_of
from ratchet.service.prices import MICRO, AgentPrices
from schemas.messages.result import TaskUsage
from schemas.messages.work import Work
from schemas.records.interaction import Interaction


@dataclass(slots=True)
class Totals:
    """Since the cascade began."""

    by_small: int = 0
    by_big: int = 0
    """Tasks whose user got the big model's answer."""
    in_place: int = 0
    """Tasks that the small model answered only because the big one did not."""
    asked: int = 0
    """Answers of the big model, served or not."""
    small_cost: float = 0.0
    big_cost: float = 0.0
    day: date | None = None
    today: float = 0.0
    """Spent on the big model on `day`, and what answers that did not come in time may have cost."""


@dataclass(slots=True)
class Spending:
    """One agent's. A task of the big model is reserved for at its most, then settled."""

    small: AgentPrices | None
    big: AgentPrices | None
    cap: float = 0.0
    """The most for the big model on one day (UTC); 0: no cap."""
    totals: Totals = field(default_factory=Totals)
    _reserved: dict[str, float] = field(default_factory=dict)

    def take_up(self, note: bytes | None) -> None:
        if note is not None:
            self.totals = msgspec.json.decode(note, type=Totals)

    def note(self) -> bytes:
        return msgspec.json.encode(self.totals)

    def has_room(self, big_task_id: str, work: Work, today: date) -> bool:
        """Tell whether the big model may be asked the same, by the most that it can cost. What is reserved for this
        task of its does not count besides."""
        others = sum(most for task_id, most in self._reserved.items() if task_id != big_task_id)
        return not self.cap or self.spent_on(today) + others + self._most(work) <= self.cap

    def spent_on(self, today: date) -> float:
        return self.totals.today if self.totals.day == today else 0.0

    def reserve(self, big_task_id: str, work: Work) -> None:
        self._reserved[big_task_id] = self._most(work)

    def settle(self, big_task_id: str, lines: Sequence[Interaction], today: date) -> None:
        """The big model has answered, or not. What ended before its answer came may be billed: the most counts."""
        most, totals = self._reserved.pop(big_task_id, 0.0), self.totals
        if lines[0].sample is None:
            if lines[0].status != "failed":
                totals.day, totals.today = today, self.spent_on(today) + most
            return
        known = any(line.usage is not None or line.sampled_tokens is not None for line in lines)
        cost = _cost(usage_of(lines), self.big) if known else most
        totals.asked += 1
        totals.big_cost += cost
        totals.day, totals.today = today, self.spent_on(today) + cost

    def add_small(self, lines: Sequence[Interaction]) -> None:
        if lines[0].sample is not None:
            self.totals.small_cost += _cost(usage_of(lines), self.small)

    def add_served(self, served: str | None, *, in_place: bool) -> None:
        self.totals.by_small += served == "small"
        self.totals.by_big += served == "big"
        self.totals.in_place += in_place

    @property
    def big_alone(self) -> float | None:
        """The cost of the big model alone, on every task; None before it was asked."""
        totals = self.totals
        if not totals.asked:
            return None
        return totals.big_cost / totals.asked * (totals.by_small + totals.by_big)

    def _most(self, work: Work) -> float:
        """No token of a prompt has less than a byte."""
        usage = TaskUsage(prompt_tokens=len(work.encode()), sampled_tokens=work.sampling.max_tokens)
        return _cost(usage, self.big)


def _cost(usage: TaskUsage, prices: AgentPrices | None) -> float:
    return 0.0 if prices is None else float(prices.of(usage) / MICRO)
