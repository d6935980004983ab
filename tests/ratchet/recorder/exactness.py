"""Whether what was recorded is what the engine was given and sampled, token for token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ratchet.recorder.engine import ScriptedEngine
from schemas.messages.response import Segment


def exact_calls(engine: ScriptedEngine, segments: Sequence[Segment]) -> int:
    """How many of the engine's calls are in the segments with each of their tokens, once, with its log-probability,
    behind all that the engine saw then. A call that sampled nothing has nothing to be recorded, and does not count."""
    whose: dict[float, tuple[int, tuple[int, ...], int]] = {}
    for number, (prompt, sampled) in enumerate(zip(engine.seen, engine.sampled, strict=True)):
        for place, token in enumerate(sampled):
            whose[token.logprob] = (number, (*prompt, *(one.id for one in sampled[:place])), token.id)
    found = Counter[int]()
    seen = set[float]()
    for segment in segments:
        whole, logprobs = (*segment.prompt_ids, *segment.completion_ids), iter(segment.logprobs)
        for start, end in segment.spans:
            for at in range(len(segment.prompt_ids) + start, len(segment.prompt_ids) + end):
                logprob = next(logprobs)
                number, before, token = whose[logprob]
                assert logprob not in seen, f"a token of call {number} is recorded twice"
                seen.add(logprob)
                found[number] += (whole[:at], whole[at]) == (before, token)
    return sum(0 < found[number] == len(sampled) for number, sampled in enumerate(engine.sampled))
