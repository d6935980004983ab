"""Rewards in: log every sample, close the task, answer the user. And tasks whose time is up: close them as expired.

What a task is (its input, its arm, where its answer goes) is read from what was admitted, never from a message. Nothing
of one task stops another: whoever can't be told, or closed, is tried again, and after some tries given up with a line
that says so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from itertools import islice
from typing import Protocol

from ratchet.bus.protocol import Delivery, decode_delivery
from ratchet.bus.topology import DRAFT_RESPONSES, EXCHANGE, RESPONSES
from ratchet.concurrency.keyed import KeyedLock
from ratchet.logs.names import SECOND_VERDICTS, is_own
from ratchet.service import failpoint
from ratchet.service.errors import BusError, Reject, Retry, StorageUnavailable
from ratchet.service.telemetry import Log, task_in_hand
from schemas.messages.response import Response
from schemas.messages.result import Result
from schemas.messages.reward import Reward
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.ledger.index import ENDINGS, Entry
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.tasks.admission import Origin
from services.orchestrator.tasks.kept_responses import KeptResponses
from services.orchestrator.tasks.result_sender import ResultSender
from services.orchestrator.tasks.settlement import (
    called_off,
    check_adapter,
    check_agent,
    check_size,
    completed_response,
    ending,
    settle,
)

log = Log("settler")

WAITS_FOR_RESPONSE = 4
"""Times that a draft-shaped Reward comes back before its Response is given up on."""
TRIES = 5
"""Tries to send a Result, or to close an overdue task, before it is given up; without a broker none counts."""
SENT_AT_ONCE = 200
MUST_AGREE = ("task_id", "agent_id", "input")
"""Fields of the Work in a Reward that say which task was answered."""

Closed = Callable[[Work, list[Interaction], Result], None]
Finish = Callable[[list[Interaction]], list[Interaction]]


class Router(Protocol):
    """A big model that may answer in an agent's place (cascade/cascades.py)."""

    def is_waiting(self, task_id: str) -> bool: ...
    def kept_reward(self, task_id: str) -> Reward | None: ...
    async def route(self, reward: Reward, work: Work, lines: list[Interaction]) -> list[Interaction] | None: ...
    async def overdue(self, work: Work) -> Finish | None: ...


@dataclass(slots=True)
class PendingResult:
    """A Result that its user does not have yet."""

    result: bytes
    origin: Origin
    sequence: int
    tries: int = 0


@dataclass(eq=False)
class Settler:
    """Handles `rewards`, and closes what is overdue. One task is settled by one of the two at a time.

    `closed` hears of every task's lines once they are in the log. `agents`: all of the fleet.

    `second_verdict` gets the Rewards that are of no task: the scorer was asked once more about an answer.
    """

    ledger: Ledger
    results: ResultSender
    closed: Closed
    _: KW_ONLY
    clock: Callable[[], datetime]
    max_logged_bytes: int
    agents: Collection[str]
    kept: KeptResponses
    second_verdict: Callable[[Reward], Awaitable[None]]
    router: Router

    def __post_init__(self) -> None:
        self._locks = KeyedLock()
        self._pending: dict[str, PendingResult] = {}
        self._not_closed: Counter[str] = Counter()

    async def handle(self, delivery: Delivery) -> None:
        reward = decode_delivery(Reward, delivery)
        task_in_hand.set(reward.task_id)
        if reward.task_id.startswith(SECOND_VERDICTS) and self.ledger.find(reward.task_id) is None:
            await self.second_verdict(reward)
            return
        if self.router.is_waiting(reward.task_id):
            return
        if reward.scored is None and self._require_known(reward.task_id).result is None:
            await self.kept.wait(reward.task_id)
        async with self._locks.of(reward.task_id):
            known = self._require_known(reward.task_id)
            if known.result is None or self._lacks_samples(reward, known):
                work = await self.ledger.work_of(known)
                response = self._response(reward, work, delivery.attempt)
                lines = settle(reward, response, work, self.clock(), self.ledger.epoch)
                lines = called_off(lines) if known.ended == ENDINGS["cancelled"] else lines
                if reward.scored is not response:
                    reward = reward.model_copy(update={"scored": response})
                await self._route(reward, work, lines, known)
            elif known.task_id in self._pending:
                await self._send_pending(known.task_id)
            elif delivery.redelivered:
                await self._repeat(known, known.result)

    async def finish_kept(self, task_id: str, finish: Finish) -> None:
        """Close an open task whose Reward was kept, with what `finish` makes of its lines."""
        async with self._locks.of(task_id):
            known = self._require_known(task_id)
            work = await self.ledger.work_of(known)
            if known.result is None and (lines := self._kept_lines(work)) is not None:
                await self._close(finish(lines), work, known)

    async def route_kept(self, task_id: str) -> None:
        """Route an open task again whose Reward was kept before this start."""
        async with self._locks.of(task_id):
            known = self._require_known(task_id)
            reward = self.router.kept_reward(task_id)
            if known.result is None and reward is not None:
                work = await self.ledger.work_of(known)
                await self._route(reward, work, self._kept_lines(work) or [], known)

    async def _route(self, reward: Reward, work: Work, lines: list[Interaction], known: Entry) -> None:
        """Close the task, unless it is open and waits for a big model."""
        routed = lines if known.result is not None else await self.router.route(reward, work, lines)
        if routed is not None:
            await self._close(routed, work, known)

    def _kept_lines(self, work: Work) -> list[Interaction] | None:
        reward = self.router.kept_reward(work.task_id)
        if reward is None or reward.scored is None:
            return None
        return settle(reward, reward.scored, work, self.clock(), self.ledger.epoch)

    async def expire_overdue(self, overdue: Sequence[Entry]) -> None:
        """Close open tasks whose deadline passed; `send_pending_results` tells their users.

        Raises StorageUnavailable once all were tried.
        """
        due = [entry for entry in overdue if self._not_closed[entry.task_id] < TRIES]
        outcomes = await asyncio.gather(*(self._expire(entry) for entry in due), return_exceptions=True)
        for entry, error in zip(due, outcomes, strict=True):
            if isinstance(error, Exception) and not isinstance(error, StorageUnavailable):
                self._not_closed[entry.task_id] += 1
                if self._not_closed[entry.task_id] == TRIES:
                    todo = "it stays open; submit it again under another task_id, and report this"
                    log.error(
                        "not-closed", f"an overdue task can't be closed: {error!r}: {todo}", task_id=entry.task_id
                    )
        _raise_first(outcomes, StorageUnavailable)

    async def cancel(self, task_id: str, who: str) -> Work | None:
        """Close an open task as cancelled and return its Work; None where it is closed. Raises JournalError.

        `send_pending_results` tells its user.
        """
        async with self._locks.of(task_id):
            known = self._require_known(task_id)
            if known.result is not None:
                return None
            work = await self.ledger.work_of(known)
            reason = f"cancelled by {who}: submit it again, under another task_id, to have it answered"
            log.info("cancelled", f"cancelled by {who}", task_id=task_id)
            await self._close([ending(work, "cancelled", reason, self.clock())], work, known, tell=False)
            return work

    @property
    def unclosable(self) -> int:
        """Overdue tasks that can't be closed: the next ones are behind them."""
        return sum(count >= TRIES for count in self._not_closed.values())

    @property
    def first_pending(self) -> int | None:
        """The number of the task that was assigned first among those whose users are not told yet."""
        return min((pending.sequence for pending in self._pending.values()), default=None)

    def add_pending_result(self, task_id: str) -> None:
        """Send the Result of this closed task again: a kill may have come before its user had it."""
        try:
            known = self._require_known(task_id)
            work = Work.decode(known.work) if known.work else None
            if work is not None and is_own(work.arm.experiment_id):
                self.ledger.mark_result_sent(task_id)
            elif known.result is not None:
                origin = _origin(work) if work else Origin()
                self._pending[task_id] = PendingResult(known.result, origin, known.sequence)
        except Exception as error:
            log.error("untold", f"it is not known whom to tell of this task: {error!r}", task_id=task_id)

    async def send_pending_results(self) -> None:
        """Send the Results that did not get through when their tasks were closed; not those that are on their way now.

        Raises BusError or StorageUnavailable once some were tried.
        """
        some = list(islice((task_id for task_id in self._pending if task_id not in self._locks), SENT_AT_ONCE))
        outcomes = await asyncio.gather(*(self._send_in_turn(task_id) for task_id in some), return_exceptions=True)
        _raise_first(outcomes, (BusError, StorageUnavailable))

    async def _send_in_turn(self, task_id: str) -> None:
        async with self._locks.of(task_id):
            await self._send_pending(task_id)

    async def _expire(self, known: Entry) -> None:
        async with self._locks.of(known.task_id):
            known = self._require_known(known.task_id)
            if known.work is not None and known.result is None:
                work = Work.decode(known.work)
                allowed = (work.deadline - work.admitted_at).total_seconds()
                reason = f"no answer within {max(0.0, allowed):.0f} s: submit it again, with a later deadline"
                log.info("expired", reason, task_id=work.task_id)
                finish = await self.router.overdue(work)
                lines = self._kept_lines(work) or [ending(work, "expired", reason, self.clock())]
                await self._close(finish(lines) if finish else lines, work, known, tell=False)

    async def _close(self, lines: list[Interaction], work: Work, known: Entry, *, tell: bool = True) -> None:
        failpoint.reach("worked")
        logged = 0 if lines[0].sample is None else known.logged
        lines[:logged] = self.ledger.torn_lines(work.task_id)[:logged] or lines[:logged]
        result, body = await self.ledger.settle(lines, logged=logged)
        failpoint.reach("settled")
        if known.result is not None:
            metrics.count_samples(lines)
            ending_was = "was cancelled" if known.ended == ENDINGS["cancelled"] else "expired"
            log.info("late", f"logged after the task was closed; the user was told that it {ending_was}")
            return
        if is_own(work.arm.experiment_id):
            self.ledger.mark_result_sent(work.task_id)
        else:
            pending = PendingResult(body, _origin(work), known.sequence)
            self._pending[work.task_id] = pending  # whatever fails from here on: it is told
        metrics.count_samples(lines)
        metrics.count_closed(work.agent_id, result.status, own=is_own(work.arm.experiment_id))
        self.closed(work, lines, result)
        if tell:
            await self._send_pending(work.task_id)

    async def _send_pending(self, task_id: str) -> None:
        """Send a pending Result; it stays pending until this succeeds or was tried TRIES times."""
        pending = self._pending.get(task_id)
        if pending is None:
            return
        failpoint.reach("telling")
        try:
            await self.results.send(task_id, pending.result, pending.origin)
        except Exception as error:
            self._pending[task_id] = self._pending.pop(task_id)  # the next time others come first
            if isinstance(error, (BusError, StorageUnavailable)):
                raise
            pending.tries += 1
            if pending.tries < TRIES:
                raise Retry(f"the user of task {task_id!r} can't be told: {error!r}") from error
            await self._give_up(task_id, pending, error)
        del self._pending[task_id]
        self.ledger.mark_result_sent(task_id)

    async def _give_up(self, task_id: str, pending: PendingResult, error: Exception) -> None:
        metrics.results_untold.inc()
        where = f"reply_to {pending.origin.reply_to!r}, correlation_id {pending.origin.correlation_id!r}"
        todo = f"its Result is in the log (ratchet result {task_id}); mend what the publisher of the task sends"
        log.error("untold", f"a user can't be told ({where}): {error!r}: {todo}", task_id=task_id)
        with suppress(Exception):
            await self.results.send(task_id, pending.result, Origin())

    async def _repeat(self, known: Entry, result: bytes) -> None:
        """The Reward came before, and whoever handled it may have ended before the user was told."""
        work = await self.ledger.work_of(known)
        if not is_own(work.arm.experiment_id):
            await self.results.send(known.task_id, result, _origin(work))

    def _require_known(self, task_id: str) -> Entry:
        known = self.ledger.find(task_id)
        if known is None and self.ledger.has_forgotten(task_id):
            raise Reject(f"task {task_id!r} was closed so long ago that its lines are removed from the log by now")
        if known is None:
            raise Reject(
                f"no task {task_id!r} was admitted by this fleet: a Reward names the task_id of a Task it sent"
            )
        return known

    def _lacks_samples(self, reward: Reward, known: Entry) -> bool:
        """Tell whether the task was closed without any: late ones are logged, also where a kill left a part of them."""
        lacks = known.logged == 0 or bool(self.ledger.torn_lines(known.task_id))
        return lacks and (reward.scored is None or bool(reward.scored.samples))

    def _response(self, reward: Reward, work: Work, attempt: int) -> Response:
        """The Response that the Reward carries, or that was kept for it; of the Work that was admitted."""
        response = reward.scored or self._kept_response(reward.task_id, attempt)
        check_adapter(response, work)
        check_size(response, self.max_logged_bytes)
        carried = response.work
        for name in MUST_AGREE if carried is not None else ():
            if carried.__dict__[name] != work.__dict__[name]:
                raise Reject(
                    f"the Work in this Reward is not the one that was admitted as task {work.task_id!r}: its {name} is "
                    f"another. A Reward carries the Response, and that the Work, as they came"
                )
        check_agent(response, work, self.agents)
        return response if carried is not None else completed_response(response, work)

    def _kept_response(self, task_id: str, attempt: int) -> Response:
        if (found := self.kept.find(task_id)) is not None:
            return found
        if self.kept.copies_come and attempt < WAITS_FOR_RESPONSE:
            raise Retry(f"the Response to task {task_id!r}, which this Reward does not carry, has not come yet")
        self.kept.give_up(task_id)
        raise Reject(
            f"this Reward does not carry the Response it scores, and none was kept for task {task_id!r}: "
            f"publish it in the field `scored`; or set RATCHET_EXTERNAL_SCORER=true for the whole fleet, and publish "
            f"Responses to {DRAFT_RESPONSES!r}, or to the exchange {EXCHANGE!r} (one sent straight to the queue "
            f"{RESPONSES!r} leaves no copy)"
        )


def _origin(work: Work) -> Origin:
    return Origin(work.reply_to, work.correlation_id)


def _raise_first(
    outcomes: Sequence[BaseException | None], kinds: type[Exception] | tuple[type[Exception], ...]
) -> None:
    for error in outcomes:
        if isinstance(error, kinds):
            raise error
