"""The copies of Responses that an external scorer's draft-shaped Rewards are completed with, whichever comes first.

The broker puts a Response into the scorer's queue and the copy into ours at once, but ours may have more before it. So
a Reward whose copy is not here waits for it, unacknowledged, as long as copies come. Only where none comes any more is
it sent up the retry ladder, whose steps are long.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from time import monotonic

from ratchet.bus.protocol import Bus, Delivery, decode_delivery, derived_id
from ratchet.bus.topology import DRAFT_RESPONSES, EXCHANGE, RESPONSES
from ratchet.service.errors import Reject
from ratchet.service.telemetry import Log, task_in_hand
from schemas.messages.response import Response
from schemas.messages.work import Work
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.tasks.settlement import check_adapter, completed_response

log = Log("kept-responses")

QUIET_S = 3.0
"""Seconds without any copy, after which a Reward waits no longer: those that were on their way have come."""
STILL_MISSING_S = 330.0
"""Seconds after its wait for which a task counts as one without a copy: the longest step of the ladder, and some."""
LONGEST_S = 20.0
"""Seconds for which a Reward waits at most: less than after which a consumer that settles nothing is in trouble."""


class Completion:
    """Handles `responses.draft`: gives draft-shaped Responses, of third-party agents, the Work that they answer."""

    def __init__(self, bus: Bus, ledger: Ledger) -> None:
        self._bus = bus
        self._ledger = ledger

    async def handle(self, delivery: Delivery) -> None:
        """Send a draft-shaped Response on as a whole one."""
        draft = decode_delivery(Response, delivery)
        task_in_hand.set(draft.task_id)
        known = self._ledger.find(draft.task_id)
        if known is None:
            raise Reject(
                f"no task {draft.task_id!r} was admitted by this fleet: a Response names the task_id of its Work"
            )
        if known.result is not None or known.work is None:
            log.info("late", "a Response to a task that is closed; it is not scored")
            return
        work = Work.decode(known.work)
        check_adapter(draft, work)
        response = completed_response(draft, work)
        await self._bus.publish(
            RESPONSES, response.encode(), type=Response.TYPE, message_id=derived_id(draft.task_id, "response")
        )


class KeptResponses:
    """Handles `responses.kept`, in a fleet with an external scorer."""

    def __init__(self, ledger: Ledger, *, external_scorer: bool, pace: float = 1.0) -> None:
        """`external_scorer`: of a fleet without one, no copies come. `pace`: as of Clocks."""
        self._ledger = ledger
        self.copies_come = external_scorer
        self._quiet_s = QUIET_S * pace
        self._longest_s = LONGEST_S * pace
        self._newest = float("-inf")
        """When the last copy came."""
        self._awaited: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._missing = dict[str, float]()
        """When a Reward last waited in vain, for each task; the longest ago first."""

    async def handle(self, delivery: Delivery) -> None:
        """Keep a Response until the Reward of its task comes, if that is open; on disk when this returns.

        The first one stays: an agent that was killed before its ack answers once more, otherwise, and what comes next
        is the Reward of the first. Raises StorageUnavailable.
        """
        task_id = decode_delivery(Response, delivery).task_id
        self._newest = monotonic()
        known = self._ledger.find(task_id)
        if known is None or known.result is not None:
            return
        await self._ledger.keep_response(task_id, self._ledger.index.kept_response(task_id) or delivery.body)
        self._missing.pop(task_id, None)
        for arrived in self._awaited.get(task_id, ()):
            arrived.set()

    def find(self, task_id: str) -> Response | None:
        """Raises StorageUnavailable."""
        body = self._ledger.index.kept_response(task_id)
        return None if body is None else Response.decode(body)

    async def wait(self, task_id: str) -> None:
        """Wait until its copy is here, or no copy came for a while. Raises StorageUnavailable."""
        if not self.copies_come or self._ledger.index.kept_response(task_id) is not None:
            return
        began, arrived = monotonic(), asyncio.Event()
        self._awaited[task_id].add(arrived)
        try:
            while not arrived.is_set() and (left := self._seconds_left(began)) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await arrived.wait()
        finally:
            self._awaited[task_id].discard(arrived)
            if not self._awaited[task_id]:
                del self._awaited[task_id]
        if not arrived.is_set():
            self._note_missing(task_id)

    def trouble(self) -> str | None:
        """Say why Rewards wait for copies that do not come; None where none does."""
        self._forget_old()
        if not self._missing:
            return None
        tasks = "1 task" if len(self._missing) == 1 else f"{len(self._missing):,} tasks"
        return (
            f"the Rewards of {tasks} carry no Response, and no copy of one has come: an agent that publishes straight "
            f"to the queue {RESPONSES!r} leaves none. Have it publish to {DRAFT_RESPONSES!r} or to the exchange "
            f"{EXCHANGE!r}, or the scorer send the Response along in the field `scored`; after some six minutes such "
            f"a Reward is in the dead letters"
        )

    def give_up(self, task_id: str) -> None:
        """Its Reward goes to the dead letters."""
        self._missing.pop(task_id, None)

    def _note_missing(self, task_id: str) -> None:
        is_first = self.trouble() is None
        self._missing.pop(task_id, None)
        self._missing[task_id] = monotonic()
        if is_first and (sentence := self.trouble()):
            log.warning("no-copy", sentence, task_id=task_id)

    def _forget_old(self) -> None:
        oldest = monotonic() - STILL_MISSING_S
        while (task_id := next(iter(self._missing), None)) is not None and self._missing[task_id] < oldest:
            del self._missing[task_id]

    def _seconds_left(self, began: float) -> float:
        """Seconds for which one that began to wait then goes on, should nothing come."""
        until = min(max(began, self._newest) + self._quiet_s, began + self._longest_s)
        return until - monotonic()
