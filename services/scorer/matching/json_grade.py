"""Grades an answer that is to be JSON: by the fields of a reference, by a JSON Schema, or by both."""

from __future__ import annotations

from typing import NamedTuple

from ratchet.service.errors import ScorerError
from services.scorer.matching.json_schema import Schema, schema_of
from services.scorer.matching.json_values import NoJson, Share, compare, find, read

FLAW = 0.5
"""The share of the score kept by an answer that does not fit the schema, or has a fence or text around it.

A program that parses the answer could not use it.
"""

SHOWN_FIELDS = 5


class Grade(NamedTuple):
    """`score` in [0, 1], and why, for a person."""

    score: float
    reason: str


def grade(answer: str, reference: str | None, criteria: str | None) -> Grade:
    """No JSON in the answer is 0. Raises ScorerError for a task with no way to grade by, or one that can't be read.

    Criteria that begin with `{` are a JSON Schema; other criteria, such as a judge's, are looked at only for want of
    a reference, and then are no way to grade by.
    """
    wanted, schema = _parse_reference(reference), _schema(criteria)
    if reference is None and schema is None:
        raise ScorerError("the task has neither a reference nor a JSON Schema as criteria to verify against")
    try:
        found = find(answer)
    except NoJson as error:
        return Grade(0.0, str(error))
    score, reasons = 1.0, list[str]()
    if reference is not None:
        share = compare(found.value, wanted)
        score = share.score
        reasons.append(_summarise(share))
    if schema is not None and (fault := schema.fault(found.value)) is not None:
        score = FLAW * (score if reference is not None else schema.share(found.value))
        reasons.append(f"not the schema: {fault}")
    if not found.alone:
        score *= FLAW
        reasons.append("a fence or text around the JSON")
    return Grade(score, "; ".join(reasons) or "as the schema asks")


def _parse_reference(reference: str | None) -> object:
    try:
        return None if reference is None else read(reference)
    except NoJson as error:
        raise ScorerError(f"the reference can't be compared as JSON: {error}") from None


def _schema(criteria: str | None) -> Schema | None:
    return schema_of(criteria) if criteria is not None and criteria.lstrip().startswith("{") else None


def _summarise(share: Share) -> str:
    said = [f"{len(share.right)} of {sum(map(len, share)) - len(share.extra)} fields right"]
    for word in ("wrong", "missing", "extra"):
        if places := getattr(share, word):
            more = f" and {len(places) - SHOWN_FIELDS} more" if len(places) > SHOWN_FIELDS else ""
            said.append(f"{word}: {', '.join(place or 'the whole' for place in places[:SHOWN_FIELDS])}{more}")
    return "; ".join(said)
