"""Ends a group's rollouts early: once its task is cancelled; and where the first passing answer is wanted, once one
passes. For that, each that ends is shown to the scorer.

The scorer's word only ends the group: it scores the whole of it as any other, and it is those scores that are logged
and that choose. While it can't be asked nothing is called off. `Moments` says when a group's rollouts ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import httpx

from ratchet.logs.best_answer import NOT_THERE, is_censored, passes
from ratchet.rollouts.rollout import Budget
from ratchet.service.errors import one_line
from ratchet.service.telemetry import Log
from schemas.api.generate import ScoreAnswer, ScoreRequest
from schemas.messages.response import Sample
from schemas.messages.work import Work

ANOTHER_PASSED = "another answer of its group had passed"
ASKED_S = 600.0
"""The scorer may take so long for an answer."""

log = Log("runner")


class EarlyStop:
    """The early stop of one group: `begin` is called for each of its rollouts that is to run, and `ended` when it did,
    however."""

    def __init__(
        self, work: Work, http: httpx.AsyncClient, scorer_url: str | None, left_s: Callable[[], float]
    ) -> None:
        """`left_s`: seconds to the deadline."""
        self._work = work
        self._http = http
        self._url = scorer_url if is_censored(work.select) and work.evaluation is None else None
        self._left_s = left_s
        self._budgets: dict[Budget, None] = {}
        self._over = asyncio.Event()
        self.called_off: str | None = None
        """The reason, once the group is called off."""

    def begin(self, budget: Budget) -> None:
        """A rollout waits for its turn, and then runs, with this budget, which ends once the group is called off."""
        if self.called_off is not None:
            budget.call_off(self.called_off)
        else:
            self._budgets[budget] = None

    async def note_end(self, budget: Budget, sample: Sample | None) -> None:
        """It is on disk, or there is none. Returns once it is known whether it passes, or nothing is left to end."""
        self._budgets.pop(budget, None)
        if not self._budgets:
            self._over.set()
        elif sample is not None:
            await self.look_at(sample)

    async def look_at(self, sample: Sample) -> None:
        """Call the others off if this one passes."""
        if self._url is None or self._over.is_set() or sample.status in NOT_THERE:
            return
        verdict = asyncio.create_task(self._passes(sample))
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait((verdict, over), return_when=asyncio.FIRST_COMPLETED)
            if verdict.done() and verdict.result():
                self.call_off(ANOTHER_PASSED)
        finally:
            verdict.cancel()
            over.cancel()
            await asyncio.gather(verdict, over, return_exceptions=True)

    def call_off(self, says: str) -> None:
        """End what runs or waits, for this reason; a second time does nothing."""
        if self.called_off is not None:
            return
        self.called_off = says
        self._over.set()
        log.info("called-off", f"{says}: {len(self._budgets)} rollouts of its group are called off")
        for budget in list(self._budgets):
            budget.call_off(says)

    async def _passes(self, sample: Sample) -> bool:
        try:
            reply = await self._http.post(
                f"{self._url}/v1/score",
                content=_score_request(self._work, sample).model_dump_json(exclude_none=True),
                headers={"Content-Type": "application/json"},
                timeout=min(ASKED_S, max(0.0, self._left_s())),
            )
            reply.raise_for_status()
            (score,) = ScoreAnswer.model_validate_json(reply.content).scores
        except (httpx.HTTPError, ValueError) as error:
            why = one_line(str(error) or type(error).__name__)
            log.warning("no-verdict", f"the scorer did not say whether an answer passes, so none is called off: {why}")
            return False
        return passes(score.score, self._work.pass_score)


def _score_request(work: Work, sample: Sample) -> ScoreRequest:
    return ScoreRequest(
        input=work.input,
        responses=(sample.text,),
        artifacts=None if sample.artifact is None else (sample.artifact,),
        usages=None if sample.usage is None else (sample.usage,),
        workspace=work.workspace,
        reference=work.reference,
        criteria=work.criteria,
        task_type=work.task_type,
    )


class Moments:
    """The clock of one group: the wall clock as it was when the group was taken up, and steady time from there on."""

    def __init__(
        self, wall: datetime, kept: Sequence[datetime] = (), seconds: Callable[[], float] = time.monotonic
    ) -> None:
        """`kept`: when rollouts of the group ended that are there from before; what ends now ended after them."""
        self._from = max((wall, *kept))
        self._seconds = seconds
        self._began = seconds()

    def now(self) -> datetime:
        return self._from + timedelta(seconds=self._seconds() - self._began)
