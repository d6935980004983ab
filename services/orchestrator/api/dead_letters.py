"""/v1/dead-letters: what could not be handled, one letter whole, and the way back."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import JsonValue

from schemas.api.dead_letters import (
    DeadLetterDetail,
    DeadLetters,
    DeadLetterView,
    Requeued,
    RequeueRequest,
    Stayed,
)
from services.api.paging import Limit
from services.api.problem import Problem, problems
from services.api.threads import Threads
from services.dead_letters.dead_letter import DeadLetter
from services.dead_letters.dead_letter_queue import Held
from services.dead_letters.office import DeadLetterOffice, advice

LetterId = Annotated[str, Path(max_length=64, description="As in the list.")]
GONE = "it is not among the dead letters (any more)"


def dead_letters_router(office: DeadLetterOffice, threads: Threads) -> APIRouter:
    router = APIRouter(tags=["dead letters"])
    turn = asyncio.Lock()

    @router.get("/v1/dead-letters", responses=problems(422, 503))
    async def dead_letters(limit: Limit = 50) -> DeadLetters:
        """What could not be handled, the oldest first. Nothing is taken out."""
        async with turn:
            letters, total = await threads.run(office.oldest, limit)
        return DeadLetters(items=[DeadLetterView.model_validate(one.as_dict()) for one in letters], total=total)

    @router.get("/v1/dead-letters/{letter_id}", responses=problems(404, 422, 503))
    async def dead_letter(letter_id: LetterId) -> DeadLetterDetail:
        """One letter whole, and what to do about it."""
        async with turn:
            held = await threads.run(office.find, letter_id)
        if held is None:
            raise Problem(404, "No such letter", f"no letter of this id: {GONE}", "unknown-letter")
        return detail(held)

    @router.post("/v1/dead-letters/requeue", responses=problems(422, 503))
    async def requeue(asked: RequeueRequest) -> Requeued:
        """Send letters back to the queues they failed in. Each leaves here only when the broker has it there."""
        ids = set(asked.ids)

        def wanted(letter: DeadLetter) -> bool:
            return letter.id in ids or (asked.queue is not None and letter.queue == asked.queue)

        async with turn:
            sent, stayed = await threads.run(office.send_back, wanted)
        missing = ids - {*sent, *(stays.id for stays in stayed)}
        return Requeued(
            sent=len(sent),
            stayed=[
                *(Stayed(id=stays.id, reason=stays.reason) for stays in stayed),
                *(Stayed(id=letter_id, reason=GONE) for letter_id in sorted(missing)),
            ],
        )

    return router


def detail(held: Held) -> DeadLetterDetail:
    try:
        body, encoding = held.body.decode(), "utf-8"
    except UnicodeDecodeError:
        body, encoding = b64encode(held.body).decode(), "base64"
    shown = held.letter.as_dict() | {"body": body, "encoding": encoding, "advice": advice(held.letter)}
    return DeadLetterDetail.model_validate(shown | {"headers": plain(held.properties.headers or {})})


def plain(headers: Mapping[str, Any]) -> dict[str, JsonValue]:
    """AMQP headers as JSON: what JSON does not know becomes text."""
    return {name: _plain(value) for name, value in headers.items()}


def _plain(value: Any) -> JsonValue:
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
