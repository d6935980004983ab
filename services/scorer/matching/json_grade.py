"""Grades an answer that is to be JSON: by the fields of a reference, by a JSON Schema, or by both."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jsonschema_rs

from ratchet.service.errors import ScorerError, one_line
from services.scorer.matching.json_values import MAX_DEPTH, NoJson, Share, compare, find, read

MAX_NODES = 2_000
"""Objects, arrays and values of a schema with every `$ref` put in."""

PATTERN_BYTES = 1 << 20
LITERALS = frozenset(("const", "enum", "default", "examples"))
"""Keywords whose value is data and no schema."""

NAMED = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))
"""Keywords whose value is schemas by name: its keys are names and no keywords."""

ELSEWHERE = frozenset(("$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"))


class Schema:
    """A schema; each property of an object schema can be checked alone."""

    def __init__(self, schema: Any) -> None:
        self._whole = _validator(schema)
        properties = schema.get("properties") if isinstance(schema, dict) else None
        own = properties if isinstance(properties, dict) else {}
        self._properties = {name: _validator(of_one) for name, of_one in own.items()}

    def fault(self, value: Any) -> str | None:
        """The first thing that is not as the schema asks; None if all is."""
        try:
            error = next(iter(self._whole.iter_errors(value)), None)
        except ValueError as unusual:  # half of a surrogate pair, which JSON can escape and UTF-8 can't hold
            return one_line(str(unusual), 100)
        if error is None:
            return None
        place = "".join(f"/{part}" for part in error.instance_path)
        return one_line(f"{place or 'the whole'}: {error.message}", 160)

    def share(self, value: Any) -> float:
        """Properties that are there and as they should be, over those of the schema and of the value; 0 without any."""
        if not self._properties or not isinstance(value, dict):
            return 0.0
        good = sum(name in value and self._holds(name, value[name]) for name in self._properties)
        return good / len(self._properties.keys() | value.keys())

    def _holds(self, name: str, value: Any) -> bool:
        try:
            return bool(self._properties[name].is_valid(value))
        except ValueError:
            return False


@lru_cache(maxsize=64)
def schema_of(criteria: str) -> Schema:
    """Raises ScorerError for what is no schema, or none that can be used."""
    try:
        return Schema(_Inlining(read(criteria)).whole())
    except NoJson as error:
        raise ScorerError(f"the criteria are no JSON Schema: {error}") from None
    except ValueError as error:
        raise ScorerError(f"the criteria are no JSON Schema: {one_line(str(error), 200)}") from None


def _validator(schema: Any) -> Any:
    patterns = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES)
    return jsonschema_rs.validator_for(schema, pattern_options=patterns, offline=True)


class _Inlining:
    """Puts in place of each `$ref` what it names. Raises ScorerError for what is too much, or elsewhere."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._nodes = 0

    def whole(self) -> Any:
        if not isinstance(self._schema, dict):
            raise ScorerError("the criteria are no JSON Schema: write an object")
        left_out = ("$defs", "definitions", "$id")
        return self._inline({key: value for key, value in self._schema.items() if key not in left_out}, 0)

    def _inline(self, node: Any, depth: int, *, names: bool = False) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > 2 * MAX_DEPTH:
            raise ScorerError(
                f"the JSON Schema in the criteria contains itself, or has more than {MAX_NODES:,} parts with every "
                "$ref put in"
            )
        if isinstance(node, list):
            return [self._inline(one, depth + 1) for one in node]
        if not isinstance(node, dict):
            return node
        if names:
            return {name: self._inline(schema, depth + 1) for name, schema in node.items()}
        if strange := sorted(ELSEWHERE & node.keys()):
            raise ScorerError(f"{strange[0]} can't be used in a JSON Schema for verifier:json: name parts as #/$defs/…")
        rest = {
            key: value if key in LITERALS else self._inline(value, depth + 1, names=key in NAMED)
            for key, value in node.items()
            if key != "$ref"
        }
        if "$ref" not in node:
            return rest
        named = self._inline(self._resolve(str(node["$ref"])), depth + 1)
        return {**rest, "allOf": [*rest.get("allOf", ()), named]} if rest else named

    def _resolve(self, reference: str) -> Any:
        found: Any = self._schema
        if not reference.startswith("#"):
            raise ScorerError(f"the $ref {reference[:100]!r} is not in the JSON Schema itself, and nothing is fetched")
        for part in filter(None, reference[1:].split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise ScorerError(f"the $ref {reference[:100]!r} names nothing in the JSON Schema")
            found = found[key]
        return found


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
