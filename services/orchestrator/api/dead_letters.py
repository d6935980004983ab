"""/v1/dead-letters: what could not be handled, one letter whole, the way back, the way out, and back from there.

Reading holds letters in hand, so one caller reads at a time. It has a bound (DeadLetterService), and whoever sends
letters back or dismisses them waits for one reader at most, however many want to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import APIRouter, Path

from ratchet.bus.dead_letters.dead_letter_service import BROWSE_S, DeadLetterService, advice
from ratchet.bus.dead_letters.letter import Listing, Place, Selection, plain, text_or_base64
from ratchet.bus.dead_letters.queue import Held, Stays
from ratchet.http.access.guard import CallerOf
from ratchet.http.operation import OPERATOR, VIEWER, Effect, operation
from ratchet.http.paging import Cursor, Limit, cursor_of, place_of
from ratchet.http.problem import Problem, problems
from ratchet.http.work import Threads
from schemas.api.dead_letters import (
    DeadLetterDetail,
    DeadLetters,
    DeadLetterView,
    Dismissed,
    DismissRequest,
    Requeued,
    RequeueRequest,
    Restored,
    RestoreRequest,
    Stayed,
)

LetterId = Annotated[str, Path(max_length=64, description="As in the list.")]
T = TypeVar("T")
GONE = "it is not among the dead letters (any more)"
NOT_DISMISSED = "no letter of this id was dismissed"
TOO_DEEP = f"it lies deeper than one look of {BROWSE_S:g} s: send some of the others back first, or dismiss them"


def dead_letters_router(service: DeadLetterService, threads: Threads) -> APIRouter:
    router = APIRouter(tags=["dead letters"])
    in_broker = _DeadLetters(service, threads)

    @router.get("/v1/dead-letters", responses=problems(422, 503))
    @operation(VIEWER, OPERATOR, title="List dead letters", tool="list_dead_letters", resource="dead-letters")
    async def dead_letters(limit: Limit = 50, cursor: Cursor = None) -> DeadLetters:
        """List the messages that could not be handled, the oldest first, each with the reason in a sentence and the
        queue it failed in. Nothing is taken out.
        """
        after = _place(cursor)
        listed = await in_broker.listing()
        letters, last = listed.page(after, limit)
        return DeadLetters(
            items=[DeadLetterView.model_validate(one.as_dict()) for one in letters],
            total=listed.total,
            next=None if last is None else cursor_of([*last]),
        )

    @router.get("/v1/dead-letters/{letter_id}", responses=problems(404, 422, 503))
    @operation(VIEWER, OPERATOR, title="Show a dead letter", resource="dead-letters")
    async def dead_letter(letter_id: LetterId) -> DeadLetterDetail:
        """Show one dead letter whole, and what to do about it."""
        held = await in_broker.find(letter_id)
        if held is None:
            raise Problem(404, "No such letter", f"no letter of this id: {GONE}, or {TOO_DEEP}", "unknown-letter")
        return detail(held)

    @router.post("/v1/dead-letters/requeue", responses=problems(422, 503))
    @operation(OPERATOR, effect=Effect.ADDS, title="Requeue dead letters", tool="requeue_dead_letters")
    async def requeue(asked: RequeueRequest) -> Requeued:
        """Send dead letters back to the queues they failed in, once what made them fail is mended: by id, or all of a
        queue. Each leaves here only when the broker has it there. What was done already is not done twice.
        """
        wanted = Selection(frozenset(asked.ids), asked.queue)
        sent, stayed = await in_broker.change(lambda: service.send_back(wanted))
        return Requeued(sent=len(sent), stayed=_stayed_letters(wanted.ids, sent, stayed, GONE))

    @router.post("/v1/dead-letters/dismiss", responses=problems(422, 503))
    @operation(OPERATOR, effect=Effect.REPLACES, title="Dismiss dead letters", tool="dismiss_dead_letters")
    async def dismiss(asked: DismissRequest, caller: CallerOf) -> Dismissed:
        """Put dead letters away that nobody needs: by id, or all of a queue. Each is in dismissed_letters.jsonl, whole
        and with the reason, before it leaves. It can be restored.
        """
        wanted = Selection(frozenset(asked.ids), asked.queue)
        gone = await in_broker.change(lambda: service.dismiss(wanted, caller.name, asked.reason))
        return Dismissed(dismissed=len(gone), stayed=_stayed_letters(wanted.ids, gone, (), GONE))

    @router.post("/v1/dead-letters/restore", responses=problems(422, 503))
    @operation(OPERATOR, effect=Effect.ADDS, title="Restore dismissed dead letters", tool="restore_dead_letters")
    async def restore(asked: RestoreRequest, caller: CallerOf) -> Restored:
        """Send dismissed letters to the queues they failed in after all, by id. Each is noted once the broker has it
        there. One that was restored before is not sent again.
        """
        wanted = frozenset(asked.ids)
        back, stayed = await in_broker.change(lambda: service.restore(wanted, caller.name, asked.reason))
        return Restored(restored=len(back), stayed=_stayed_letters(wanted, back, stayed, NOT_DISMISSED))

    return router


def _stayed_letters(wanted: frozenset[str], moved: Iterable[str], stayed: Sequence[Stays], absent: str) -> list[Stayed]:
    """`absent`: the reason of those of which nothing is known."""
    missing = wanted.difference(moved, (stays.id for stays in stayed))
    return [
        *(Stayed(id=stays.id, reason=stays.reason) for stays in stayed),
        *(Stayed(id=letter_id, reason=absent) for letter_id in sorted(missing)),
    ]


def _place(cursor: str | None) -> Place | None:
    if (place := place_of(cursor, str, str, int)) is None:
        return None
    at, letter_id, nth = place
    return Place(str(at), str(letter_id), int(nth))


@dataclass(eq=False)
class _DeadLetters:
    """The service, one caller at a time. What was begun is ended, even if its caller has gone."""

    service: DeadLetterService
    threads: Threads

    def __post_init__(self) -> None:
        self._readers = asyncio.Lock()
        """Readers wait here first: only one of them competes for the service with those who send back."""
        self._turn = asyncio.Lock()
        self._known: Listing | None = None

    async def listing(self) -> Listing:
        async def read() -> Listing:
            async with self._readers, self._turn:
                self._known = await self.threads.run(self.service.listing, self._known)
                return self._known

        return await asyncio.shield(read())

    async def find(self, letter_id: str) -> Held | None:
        async def read() -> Held | None:
            async with self._readers, self._turn:
                return await self.threads.run(self.service.find, letter_id, BROWSE_S)

        return await asyncio.shield(read())

    async def change(self, made: Callable[[], T]) -> T:
        """Take letters out, or bring them back."""

        async def make() -> T:
            async with self._turn:
                self._known = None
                return await self.threads.run(made)

        return await asyncio.shield(make())


def detail(held: Held) -> DeadLetterDetail:
    body, encoding = text_or_base64(held.body)
    shown = held.letter.as_dict() | {"body": body, "encoding": encoding, "advice": advice(held.letter)}
    return DeadLetterDetail.model_validate(shown | {"headers": plain(held.properties.headers or {})})
