"""The scorer specification: text such as `0.7*verifier:exact + 0.3*judge:absolute` as a value. It builds nothing."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from ratchet.service.errors import ScorerError

_PART = re.compile(r"(?:(?P<weight>\d+(?:\.\d+)?|\.\d+)\s*\*\s*)?(?P<name>[A-Za-z_][\w-]*)(?::(?P<argument>[^\s+*]+))?")
_RULE = re.compile(r"\s(and|else)\s")
COSTS = frozenset({"tokens", "time"})
"""Scorers of what an answer took. They earn only what something else found right (`registry.Weighted`)."""
WITHOUT_REFERENCE = COSTS | {"likelihood", "style", "security"}
"""Scorers that have no use for a task's reference: whoever gives one is told."""
_EXAMPLES = "`verifier:normalised`, `judge:absolute` or `0.7*verifier:exact + 0.3*judge:absolute`"


@dataclass(frozen=True, slots=True)
class Part:
    """A strategy by name, what it is told (empty for nothing), and its weight in (0, 1]."""

    name: str
    argument: str
    weight: float

    @property
    def text(self) -> str:
        return f"{self.name}:{self.argument}" if self.argument else self.name

    @property
    def is_cost(self) -> bool:
        return self.name in COSTS


Rule = Literal["and", "else"]


@dataclass(frozen=True, slots=True)
class Spec:
    """One part or several; the weights add up to 1.

    Before them there may be one that decides first. `first and parts`: what it scores 0 is 0, and of the rest its score
    times theirs counts. `first else parts`: they are asked about what it has no way to score.
    """

    parts: tuple[Part, ...]
    first: Part | None = None
    rule: Rule = "and"

    @property
    def strategies(self) -> tuple[Part, ...]:
        """All strategies."""
        return ((self.first,) if self.first else ()) + self.parts

    @property
    def looks_at_references(self) -> bool:
        """A registered scorer of somebody else's is taken to."""
        return any(part.name not in WITHOUT_REFERENCE for part in self.strategies)

    @property
    def judging(self) -> Spec:
        """The spec without scores of cost, for an answer that cost nothing new, as one that is only tried."""
        first = None if self.first is None or self.first.is_cost else self.first
        kept = [part for part in self.parts if not part.is_cost]
        if not kept and first is not None:  # of a rule with a side of cost its other side is left
            return Spec((replace(first, weight=1.0),))
        total = math.fsum(part.weight for part in kept)
        return Spec(tuple(replace(part, weight=part.weight / total) for part in kept), first, self.rule)

    @property
    def text(self) -> str:
        """The canonical form: the same for all ways to write the same scorer, but for the order of its parts."""
        if self.first:
            return f"{self.first.text} {self.rule} {Spec(self.parts).text}"
        if len(self.parts) == 1:
            return self.parts[0].text
        return " + ".join(f"{part.weight:.6g}*{part.text}" for part in self.parts)


def parse_spec(text: str) -> Spec:
    """Weights are optional, but all or none; they are normalised. Raises ScorerError, with an example."""
    spec = _parse(text)
    judging = [spec.strategies] if spec.rule == "and" else [spec.strategies[:1], spec.parts]
    if any(all(part.is_cost for part in parts) for parts in judging):
        raise _bad(text, "by its cost alone the best answer is none; name what judges it too")
    return spec


def _parse(text: str) -> Spec:
    decided = _RULE.split(text, maxsplit=1)
    if len(decided) == 3:
        first, rule, rest = decided
        return _decided_first(text, first, "and" if rule == "and" else "else", rest)
    pieces = [piece.strip() for piece in text.split("+")]
    matches = [_PART.fullmatch(piece) for piece in pieces]
    for piece, match in zip(pieces, matches, strict=True):
        if match is None:
            raise _bad(text, f"{piece!r} is not `name`, `name:argument` or `weight*name:argument`")
    return Spec(_parse_parts(text, [match.groupdict() for match in matches if match]))


def _decided_first(text: str, first: str, rule: Rule, rest: str) -> Spec:
    if _RULE.search(rest):
        raise _bad(text, "only one scorer can decide before the others")
    deciding, others = _parse(first), _parse(rest)
    if len(deciding.parts) > 1:
        raise _bad(text, f"before {rule!r} stands one scorer, not a sum")
    if deciding.parts[0].text in {part.text for part in others.parts}:
        raise _bad(text, "a strategy is named twice")
    return Spec(others.parts, deciding.parts[0], rule)


def _parse_parts(text: str, found: list[dict[str, str | None]]) -> tuple[Part, ...]:
    given = [part["weight"] for part in found]
    if any(given) and not all(given):
        raise _bad(text, "some parts have a weight and some have none; give all of them one, or none")
    weights = [float(weight or 1) for weight in given]
    if min(weights) <= 0:
        raise _bad(text, "a weight must be greater than 0")
    parts = tuple(
        Part(part["name"] or "", part["argument"] or "", weight / sum(weights))
        for part, weight in zip(found, weights, strict=True)
    )
    if len({part.text for part in parts}) < len(parts):
        raise _bad(text, "a strategy is named twice; add the weights up instead")
    return parts


def _bad(text: str, fault: str) -> ScorerError:
    return ScorerError(f"scorer {text!r} can't be read: {fault}. Write for example {_EXAMPLES}.")
