"""Raises the share of tasks that a small model answers in place of a big one, one step at a time, by proof. Pure.

A task is answered by the small model where the score that routes (the best of its group) reaches the cut. The cut of a
step is the quantile of recent scores at which the small model would answer the step's share of the tasks.

The null of a raise: the cascade with the next cut is worse than the big model alone by `margin` or more, on the mean of
the next task given all before it. The null of a fall: with the present cut it is worse by no more than that. A unit is
a drawn task; its difference is the small model's fresh score minus the big model's where the small one answers, and 0
where the big one answers either way. So only tasks that the next step would have the small model answer cost an audit,
and a task is drawn with a probability of audit / (the next share): the cost is the same at each step.

Fresh means: a judgement that did not route. A score that routes is chosen for being high, so it would prove losses
harmless (bench.cascade has the figures).

Errors: within one attempt the steps are proved in a fixed order, each at α, so the first raise that is wrong happens
with a probability of α at most. The n-th attempt has α/(n(n + 1)); these sum to α over the life of the fleet. It
ends with a fall, a new small or big model, another scorer, or TURN units without a step. A fall takes an e-value of
1/α: a wrong one costs money and no quality.

Left to the caller: asking the models, having their answers judged, the order of units (that of routing), and logging.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ratchet.experiments.e_process import BettingProcess

SHARES = (0.0, 0.1, 0.2, 0.4, 0.8, 1.0)
"""The steps: the share of tasks that the small model answers."""
RECENT = 500
"""Scores that a cut is taken from."""
FEWEST = 50
"""Scores without which there is no cut."""
TURN = 5_000
"""Units after which the evidence begins anew: wealth that was lost long ago would hide what is true now."""

Move = Literal["raise", "fall", "anew"]


@dataclass(frozen=True, slots=True)
class CascadePlan:
    margin: float = 0.02
    """The loss of score against the big model alone that is not accepted."""
    alpha: float = 0.05
    audit: float = 0.1
    """The share of all tasks that may be audited."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The small model answers above `score`, and with probability `share_at` at it. Without a score it never does."""

    score: float = 1.0
    share_at: float = 0.0

    def takes(self, score: float | None, draw: float) -> bool:
        """`draw`: uniform in [0, 1), known before the task is answered."""
        return score is not None and (score > self.score or (score == self.score and draw < self.share_at))


NOTHING = Cut(score=2.0)
EVERYTHING = Cut(score=0.0, share_at=1.0)


def cut_for(share: float, scores: Sequence[float | None]) -> Cut:
    """The cut at which `share` of tasks with such scores are the small model's; those without a score are never."""
    if share <= 0.0:
        return NOTHING
    if share >= 1.0:
        return EVERYTHING
    known = sorted((score for score in scores if score is not None), reverse=True)
    wanted = share * len(scores)
    if len(known) <= wanted:
        return EVERYTHING
    score = known[int(wanted)]
    above = sum(one > score for one in known)
    return Cut(score, (wanted - above) / sum(one == score for one in known))


@dataclass(frozen=True, slots=True)
class Routed:
    """The route of a task whose small group was scored, by draws that were made before."""

    score: float | None
    draw: float
    is_small: bool
    """The small model answers it."""
    is_drawn: bool
    """It is a unit: its difference counts."""
    is_audited: bool
    """Both must answer, and both answers be judged afresh: the next step would have the small model answer it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A unit's fresh judgements; None twice where the big model answers at this step and the next."""

    small: float | None = None
    big: float | None = None


@dataclass(frozen=True, slots=True)
class CascadeEvidence:
    """The e-values of one attempt at one step."""

    units: int
    audited: int
    difference: float
    """The mean over the units, with the next cut."""
    not_worse: float
    worse: float
    raise_at: float
    fall_at: float


class Cascade:
    """One agent's. Give it each task in the order of routing (`route`), and each unit in that order (`observe`)."""

    def __init__(
        self,
        plan: CascadePlan,
        *,
        step: int = 0,
        attempt: int = 1,
        cut: Cut = NOTHING,
        scores: Iterable[float | None] = (),
    ) -> None:
        """`scores`: of the newest tasks, oldest first."""
        self.plan = plan
        self.step = step
        self.attempt = attempt
        self.cut = cut
        self.is_frozen = False
        """True while the share may not be raised; the evidence goes on."""
        self.next_cut: Cut | None = None
        """The cut that is tested; None at the last step, and until enough scores are known."""
        self.decided_by: CascadeEvidence | None = None
        """The evidence of the newest move."""
        self._scores = deque(scores, RECENT)
        self._begin()

    @property
    def share(self) -> float:
        return SHARES[self.step]

    @property
    def draw_share(self) -> float:
        """The probability with which a task is a unit, whatever its score."""
        return min(1.0, self.plan.audit / SHARES[min(self.step + 1, len(SHARES) - 1)])

    @property
    def evidence(self) -> CascadeEvidence:
        return CascadeEvidence(
            units=self._units,
            audited=self._audited,
            difference=self._total / self._units if self._units else 0.0,
            not_worse=self._not_worse.e,
            worse=self._worse.e,
            raise_at=self.attempt * (self.attempt + 1) / self.plan.alpha,
            fall_at=1.0 / self.plan.alpha,
        )

    def route(self, score: float | None, *, draw: float, audit_draw: float) -> Routed:
        """Both draws are uniform in [0, 1), independent, and no client knows them."""
        if self.next_cut is None and self.step + 1 < len(SHARES) and len(self._scores) >= FEWEST:
            self.next_cut = cut_for(SHARES[self.step + 1], self._scores)
        self._scores.append(score)
        tested = self.next_cut or (self.cut if self.step + 1 == len(SHARES) else None)
        is_drawn = tested is not None and audit_draw < self.draw_share
        would_move = tested is not None and tested.takes(score, draw)
        return Routed(score, draw, self.cut.takes(score, draw), is_drawn, is_drawn and would_move)

    def take_up(self, score: float | None, tested: Cut | None) -> None:
        """Note a task that was routed before a restart; `tested`: of a unit, the cut that was tested."""
        self._scores.append(score)
        if tested is not None and self.step + 1 < len(SHARES):
            self.next_cut = tested

    def observe(self, routed: Routed, pair: Pair) -> Move | None:
        """The next unit. One that the big model failed to answer is to be left out: the small one has no part in it.

        An answer of the small model without a judgement counts 0, one of the big model's as 1: nobody gains by it.
        """
        self._units += 1
        difference = 0.0
        if routed.is_audited:
            self._audited += 1
            difference = (pair.small or 0.0) - (1.0 if pair.big is None else pair.big)
        now = difference if routed.is_small else 0.0
        self._total += difference
        margin = self.plan.margin
        self._not_worse.bet(difference + margin, 1.0 - margin)
        self._worse.bet(-now - margin, 1.0 + margin)
        return self._step()

    def renew(self, *, step: int | None = None, cut: Cut | None = None) -> None:
        """Begin a new attempt: another model or scorer answers, or an operator sets the step."""
        self.attempt += 1
        if step is not None:
            self.step, self.cut = step, cut_for(SHARES[step], self._scores) if cut is None else cut
        self._begin()

    def _step(self) -> Move | None:
        self.decided_by = evidence = self.evidence
        if self.step and evidence.worse >= evidence.fall_at:
            self.renew(step=self.step - 1)
            return "fall"
        if self.next_cut is not None and not self.is_frozen and evidence.not_worse >= evidence.raise_at:
            self.step, self.cut = self.step + 1, self.next_cut
            self._begin()
            return "raise"
        if self._units >= TURN:
            self.renew()
            return "anew"
        return None

    def _begin(self) -> None:
        self.next_cut = None
        self._units = self._audited = 0
        self._total = 0.0
        self._not_worse, self._worse = BettingProcess(), BettingProcess()
