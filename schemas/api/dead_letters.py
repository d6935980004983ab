"""Dead letters over the API."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from schemas.api.adapters import Reason
from schemas.api.page import Page
from schemas.messages.base import Record


class DeadLetterView(Record):
    """`id` is the same at every look. `queue` is where it failed, as named on the wire; null if it does not say."""

    id: str
    queue: str | None
    reason: str
    attempts: int | None
    at: str | None = Field(description="When it failed: ISO 8601.")
    by: str | None
    type: str | None
    message_id: str | None
    size: int = Field(ge=0, description="Bytes.")
    beginning: str


class DeadLetters(Page[DeadLetterView]):
    """The oldest first; what came or left since the page before does no harm to the order.

    At most 10,000 are listed, fewer where they are long: send those back or dismiss them, and the rest comes into view.
    """

    total: int = Field(ge=0, description="How many there are in all.")


class DeadLetterDetail(DeadLetterView):
    """Whole: `body` is text, or base64 where it is not UTF-8."""

    body: str
    encoding: Literal["utf-8", "base64"]
    headers: dict[str, JsonValue]
    advice: str = Field(description="What to do about it.")


class Which(Record):
    """These letters, or all that failed in that queue."""

    ids: list[str] = Field(default_factory=list, max_length=1000, description="As in the letters' field `id`.")
    queue: str | None = Field(None, description="As in the letter's field `queue`.")

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        if bool(self.ids) == (self.queue is not None):
            raise ValueError("name either ids or a queue")
        return self


class RequeueRequest(Which):
    """Letters to send back to the queue they failed in: these, or all that failed in that queue."""


class DismissRequest(Which):
    """Letters that nobody needs: these, or all that failed in that queue."""

    reason: Reason = Field(description="Why: it is kept with each letter, under the caller's name.")


class RestoreRequest(Record):
    """Dismissed letters to send to the queue they failed in after all."""

    ids: list[str] = Field(min_length=1, max_length=1000, description="As in the letters' field `id`.")
    reason: Reason = Field(description="Why: it is kept beside the letter, under the caller's name.")


class Stayed(Record):
    id: str
    reason: str


class Requeued(Record):
    sent: int = Field(ge=0, description="Letters that are back in their queue.")
    stayed: list[Stayed] = Field(description="Letters that were asked for and stay, with the reason.")


class Dismissed(Record):
    """The same call again finds the same."""

    dismissed: int = Field(
        ge=0, description="Letters that left the queue for `dismissed_letters.jsonl`; of `ids`, also earlier ones."
    )
    stayed: list[Stayed] = Field(description="Letters that were asked for and not found, with the reason.")


class Restored(Record):
    """The same call again finds the same, and sends nothing twice."""

    restored: int = Field(ge=0, description="Letters that are in their queue again, or were sent there before.")
    stayed: list[Stayed] = Field(description="Letters that were asked for and could not be restored, with the reason.")
