"""One case for the judge: what a single call judges, under which nonce, ids and order. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from schemas.messages.task import Prompt

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shown:
    """An answer under the id the judge knows it by."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Case:
    """The content that one call judges, answers in the order shown."""

    nonce: str
    prompt: Prompt
    answers: tuple[Shown, ...]
    reference: str | None = None
    criteria: str | None = None


def derive_nonce(key: bytes, *parts: object) -> str:
    """128 bits in hex from what is judged and a key: no text can hold its own nonce; the same call gives the same."""
    return hmac.new(key, repr(parts).encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]


def answer_ids(nonce: str, count: int) -> list[str]:
    """Return as many distinct ids, which say nothing of the order the answers came in."""
    return [hashlib.sha256(f"{nonce}/{index}".encode()).hexdigest()[:12] for index in range(count)]


def shown_order(task_id: str, count: int, turn: int) -> list[int]:
    """A permutation of the answers: settled by the task, rotated by `turn`, so that over votes no place is favoured."""
    shuffled = sorted(range(count), key=lambda index: hashlib.sha256(f"{task_id}/{index}".encode()).digest())
    start = turn % count if count else 0
    return shuffled[start:] + shuffled[:start]


def in_request_order(items: Sequence[T], order: Sequence[int]) -> list[T]:
    """Undo `shown_order`: what belongs to answer i at place i."""
    by_index = dict(zip(order, items, strict=True))
    return [by_index[index] for index in range(len(order))]
