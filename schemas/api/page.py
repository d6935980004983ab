"""The shape of every list of the API: items, and a cursor to the next ones."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import Field

from schemas.messages.base import Record

T = TypeVar("T")


class Page(Record, Generic[T]):
    """`next` given as the query parameter `cursor` brings the next page."""

    items: list[T]
    next: str | None = Field(None, description="Opaque cursor of the next page; null at the end.")
