"""Queues over the API."""

from __future__ import annotations

from pydantic import Field

from schemas.messages.base import Record, Timestamp


class QueueView(Record):
    """A queue of the topology, or a rung of the retry ladder, as the broker sees it."""

    name: str
    about: str
    message: str = Field(description="The type of message it holds.")
    producers: list[str]
    consumers: list[str] = Field(description="Who is meant to consume it.")
    messages: int | None = Field(description="Ready for delivery; null: the broker has no such queue.")
    consuming: int = Field(ge=0, description="Consumers it has now.")
    max_length: int | None
    retry_after_s: float | None = Field(description="Of a rung of the retry ladder: how long a message stays.")


class Queues(Record):
    """`at`: when the broker was asked; asked at most once a second."""

    at: Timestamp
    items: list[QueueView]
