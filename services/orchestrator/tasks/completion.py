"""Draft-shaped Responses, of third-party agents: give them the Work they answer, or keep them for their Rewards."""

from __future__ import annotations

from ratchet.bus.protocol import Bus, Delivery, decode_delivery, derived_id
from ratchet.bus.topology import RESPONSES
from ratchet.service.errors import Reject
from ratchet.service.telemetry import Log, task_in_hand
from schemas.messages.response import Response
from schemas.messages.work import Work
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.tasks.kept_responses import KeptResponses
from services.orchestrator.tasks.settlement import check_adapter, completed_response

log = Log("completion")


class Completion:
    """Handles `responses.draft` and, in a fleet with an external scorer, `responses.kept`."""

    def __init__(self, bus: Bus, ledger: Ledger, kept: KeptResponses) -> None:
        self._bus = bus
        self._ledger = ledger
        self._kept = kept

    async def complete(self, delivery: Delivery) -> None:
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

    async def keep(self, delivery: Delivery) -> None:
        """Remember a Response until its Reward comes."""
        await self._kept.keep(decode_delivery(Response, delivery).task_id, delivery.body)
