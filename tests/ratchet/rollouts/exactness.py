"""Comparison of a record with what the engine was given and sampled, token for token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from ratchet.rollouts.engine import Token
from schemas.messages.response import Segment

Call = tuple[tuple[int, ...], tuple[Token, ...]]
"""A call: the prompt, and what was sampled for it."""


class Watched(Protocol):
    """An engine that keeps its prompts, and what it sampled for each."""

    seen: list[tuple[int, ...]]
    sampled: list[list[Token]]


def exact_calls(engine: Watched, segments: Sequence[Segment]) -> int:
    """Count the engine's calls that are recorded exactly: each token once, with its log-probability, behind the prompt
    of that call. A call that sampled nothing does not count.

    Raises AssertionError if the segments have tokens that were not sampled so, or have them twice.
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
