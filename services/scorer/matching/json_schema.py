"""A JSON Schema that came with a task, made ready to check answers, whatever its author meant by it.

Patterns run on a linear engine. Nothing is fetched: a `$ref` names a place in the schema itself. Each is put in where
it is named, within a bound, because a few dozen that name each other twice would keep a validator busy for ever; so a
schema that contains itself is refused, as is one with anchors or dynamic references.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema_rs

from ratchet.service.errors import ScorerError, one_line
from services.scorer.matching.json_values import MAX_DEPTH, NoJson, read

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
