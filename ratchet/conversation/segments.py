"""A conversation as what a trainer takes: every sampled token in exactly one segment, under its own context. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ratchet.conversation.conversation import Call, Conversation
from schemas.messages.response import Segment


def segments_of(conversation: Conversation) -> tuple[Segment, ...]:
    """One for each leaf of the tree, in the order of their first calls; a linear rollout is one.

    What calls have in common is trained in the first of their segments, and is the prompt of the others.
    """
    taken: set[int] = set()
    return tuple(_segment(path, taken) for path in _paths(conversation.calls))


def _paths(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """From the root to each call that sampled something and that none goes on from that did."""
    with_tokens = [call for call in calls if call.ids]
    gone_on_from = {call.parent.number for call in with_tokens if call.parent is not None}
    paths = [call.path for call in with_tokens if call.number not in gone_on_from]
    yield from sorted(paths, key=lambda path: [call.number for call in path])


def _segment(path: Sequence[Call], taken: set[int]) -> Segment:
    new = next(index for index, call in enumerate(path) if call.number not in taken)
    completion: list[int] = list(path[new].ids)
    spans, logprobs = [(0, len(completion))], list(path[new].logprobs)
    for call in path[new + 1 :]:
        start = len(completion) + len(call.added)
        completion += [*call.added, *call.ids]
        spans.append((start, len(completion)))
        logprobs += call.logprobs
    taken.update(call.number for call in path)
    return Segment(
        prompt_ids=path[new].prompt_ids,
        completion_ids=tuple(completion),
        spans=tuple(spans),
        logprobs=tuple(logprobs),
        broke=path[new].broke,
    )
