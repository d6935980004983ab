"""The judge's verdict: the JSON Schema it must follow, and the strict reading of a reply. Pure.

A verdict names the nonce of its case and the id of every answer, so one that was copied out of an answer is none.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ratchet.service.errors import ScorerError
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


TOP = 10
"""Scores are integers from 0 to this; score / TOP is the reward."""


class VerdictError(ScorerError):
    """The judge's reply is no verdict on this case."""


@dataclass(frozen=True, slots=True)
class Grade:
    """`score` in [0, 1]."""

    score: float
    reason: str


class _Verdict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    id: str
    reason: str
    score: int


class _Verdicts(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    nonce: str
    verdicts: list[_Verdict]


def verdict_schema(case: Case) -> dict[str, Any]:
    """JSON Schema of a verdict on this case, within what strict structured output accepts everywhere."""
    verdict = {
        "id": {"type": "string", "enum": [answer.id for answer in case.answers]},
        "reason": {"type": "string"},
        "score": {"type": "integer", "enum": list(range(TOP + 1))},
    }
    verdicts = {"type": "array", "items": _closed_object(verdict)}
    return _closed_object({"nonce": {"type": "string", "enum": [case.nonce]}, "verdicts": verdicts})


def _closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def parse_verdict(reply: str, case: Case) -> list[Grade]:
    """One grade per answer, in the order shown. Raises VerdictError for anything but a whole verdict on this case."""
    try:
        given = _Verdicts.model_validate_json(reply)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise VerdictError(
            f"the judge's reply is no verdict: {fault['msg']} {'.'.join(map(str, fault['loc']))}"
        ) from None
    if given.nonce != case.nonce:
        raise VerdictError("the judge's verdict is on another case: its nonce is not the one that was given")
    if sorted(verdict.id for verdict in given.verdicts) != sorted(answer.id for answer in case.answers):
        raise VerdictError("the judge's verdict does not have each answer exactly once")
    by_id = {verdict.id: verdict for verdict in given.verdicts}
    return [_grade(by_id[answer.id]) for answer in case.answers]


def _grade(verdict: _Verdict) -> Grade:
    if not 0 <= verdict.score <= TOP:
        raise VerdictError(f"the judge gave {verdict.score}, outside 0 to {TOP}")
    return Grade(verdict.score / TOP, verdict.reason)
