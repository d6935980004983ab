"""Rewards in: log every sample, close the task, answer the user. And tasks whose time is up: close them as expired."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ratchet.bus.protocol import Delivery, opened
from ratchet.bus.topology import EXCHANGE
from ratchet.concurrency.keyed_lock import KeyedLock
from ratchet.logs.names import is_own
from ratchet.service import failpoint
from ratchet.service.errors import Reject, Retry
from ratchet.service.telemetry import Log, task_in_hand
from schemas.messages.response import Response
from schemas.messages.reward import Reward
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.ledger.index import Entry
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.tasks.admission import Origin
from services.orchestrator.tasks.answers import Answers
from services.orchestrator.tasks.settlement import completed_response, ending, settle

log = Log("settler")

WAITS_FOR_RESPONSE = 4
"""How often a draft-shaped Reward comes back before its Response is given up on."""


class Settler:
    """Handles `rewards`, and closes what is overdue. One task is settled by one of the two at a time."""

    def __init__(
        self,
        ledger: Ledger,
        answers: Answers,
        closed: Callable[[Work, list[Interaction]], None],
        clock: Callable[[], datetime],
    ) -> None:
        """`closed` hears of every task's lines once they are in the log."""
        self._ledger = ledger
        self._answers = answers
        self._closed = closed
        self._clock = clock
        self._turns = KeyedLock()
        self._untold: dict[str, Origin] = {}

    async def handle(self, delivery: Delivery) -> None:
        reward = opened(Reward, delivery)
        task_in_hand.set(reward.task_id)
        async with self._turns.of(reward.task_id):
            known = self._known(reward.task_id)
            if known.result is None or self._lacks_samples(reward, known):
                response, work = self._completed(reward, known, delivery.attempt)
                await self._close(settle(reward, response, work, self._clock()), work, known)
            elif delivery.redelivered or known.task_id in self._untold:
                await self._tell(known.task_id, known.result, _origin(reward.scored.work if reward.scored else None))

    async def expire(self, known: Entry) -> None:
        """Close an open task whose deadline passed, and tell the user."""
        async with self._turns.of(known.task_id):
            known = self._known(known.task_id)
            if known.work is not None and known.result is None:
                work = Work.decode(known.work)
                allowed = (work.deadline - work.admitted_at).total_seconds()
                reason = f"no answer within {max(0.0, allowed):.0f} s: submit it again, with a later deadline"
                log.info("expired", reason, task_id=work.task_id)
                await self._close([ending(work, "expired", reason, self._clock())], work, known)

    def owe(self, task_id: str) -> None:
        """The user of this closed task may not have been told: a kill came in between."""
        known = self._known(task_id)
        work = Work.decode(known.work) if known.work else None
        if work is not None and is_own(work.arm.experiment_id):
            self._ledger.told(task_id)
        else:
            self._untold[task_id] = _origin(work)

    async def tell_the_untold(self) -> None:
        """Send the Results that did not get through when their tasks were closed. Raises BusError."""
        for task_id in list(self._untold):
            async with self._turns.of(task_id):
                if task_id in self._untold:
                    await self._tell(task_id, self._known(task_id).result, Origin())

    async def _close(self, lines: list[Interaction], work: Work, known: Entry) -> None:
        failpoint.reach("worked")
        logged = 0 if lines[0].sample is None else known.logged
        lines[:logged] = self._ledger.torn(work.task_id)[:logged] or lines[:logged]
        result, body = await self._ledger.settle(lines, logged=logged)
        self._ledger.index.forget_response(work.task_id)
        metrics.count_samples(lines)
        if known.result is None:
            self._closed(work, lines)
            metrics.closed(work.agent_id, result.status).inc()
            if is_own(work.arm.experiment_id):
                self._ledger.told(work.task_id)
            else:
                origin = self._untold[work.task_id] = _origin(work)
                await self._tell(work.task_id, body, origin)
        else:
            log.info("late", "logged after the deadline had closed the task; the user was told it expired")

    async def _tell(self, task_id: str, result: bytes | None, origin: Origin) -> None:
        """Until this succeeds, the task stays among the untold."""
        if result is not None:
            await self._answers.send(task_id, result, self._untold.get(task_id, origin))
        self._untold.pop(task_id, None)
        self._ledger.told(task_id)

    def _known(self, task_id: str) -> Entry:
        known = self._ledger.find(task_id)
        if known is None and self._ledger.has_forgotten(task_id):
            raise Reject(f"task {task_id!r} was closed so long ago that its lines are removed from the log by now")
        if known is None:
            raise Reject(
                f"no task {task_id!r} was admitted by this fleet: a Reward names the task_id of a Task it sent"
            )
        return known

    def _lacks_samples(self, reward: Reward, known: Entry) -> bool:
        """Of a task closed without any: they come late, but they are logged, also where a kill left a part of them."""
        lacks = known.logged == 0 or bool(self._ledger.torn(known.task_id))
        return lacks and (reward.scored is None or bool(reward.scored.samples))

    def _completed(self, reward: Reward, known: Entry, attempt: int) -> tuple[Response, Work]:
        """The Reward's own Response and Work; for a draft-shaped one, those that were kept."""
        response = reward.scored or self._kept_response(reward.task_id, attempt)
        if response.work is not None:
            return response, response.work
        if known.work is None:
            raise Reject(f"task {reward.task_id!r} is closed, and this Reward does not carry its Work")
        work = Work.decode(known.work)
        return completed_response(response, work), work

    def _kept_response(self, task_id: str, attempt: int) -> Response:
        body = self._ledger.index.kept_response(task_id)
        if body is not None:
            return Response.decode(body)
        if attempt < WAITS_FOR_RESPONSE:
            raise Retry(f"the Response to task {task_id!r}, which this Reward does not carry, has not come yet")
        raise Reject(
            f"this Reward does not carry the Response it scores, and none was kept for task {task_id!r}: "
            f"publish it in the field `scored`; or set RATCHET_EXTERNAL_SCORER=true for the whole fleet, and publish "
            f"Responses to the exchange {EXCHANGE!r} (one sent straight to the queue leaves no copy)"
        )


def _origin(work: Work | None) -> Origin:
    return Origin(work.reply_to, work.correlation_id) if work else Origin()
