"""Whether what was recorded is what the engine was given and sampled, token for token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from ratchet.rollouts.engine import Token
from schemas.messages.response import Segment

Call = tuple[tuple[int, ...], tuple[Token, ...]]
"""What the model was given, and what it sampled then."""


class Watched(Protocol):
    """An engine that keeps the prompts it saw, and what it sampled to each."""

    seen: list[tuple[int, ...]]
    sampled: list[list[Token]]


def exact_calls(engine: Watched, segments: Sequence[Segment]) -> int:
    """How many of the engine's calls are in the segments with each of their tokens, once, with its log-probability,
    behind all that the engine saw then. A call that sampled nothing has nothing to be recorded, and does not count.

    Raises AssertionError where the segments have tokens that were not sampled just so, or have them twice.
    """
    sampled = Counter((seen, tuple(said)) for seen, said in zip(engine.seen, engine.sampled, strict=True) if said)
    recorded = Counter(_recorded(segments))
    invented = recorded - sampled
    assert not invented, f"{invented.total()} calls are recorded that were not made: {next(iter(invented))}"
    return (recorded & sampled).total()


def _recorded(segments: Sequence[Segment]) -> Iterator[Call]:
    for segment in segments:
        logprobs = iter(segment.logprobs)
        for start, end in segment.spans:
            ids = segment.completion_ids[start:end]
            given = (*segment.prompt_ids, *segment.completion_ids[:start])
            yield given, tuple(Token(one, next(logprobs)) for one in ids)
