"""A conversation as it is logged: every sampled token in exactly one segment, under its own context. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from ratchet.conversation.conversation import Call, Conversation
from ratchet.conversation.messages import Message
from schemas.messages.grammar import SpanGrammar
from schemas.messages.response import Sample, SampleStatus, Segment, ToolCall, Turn, Usage


def sample_of(
    conversation: Conversation,
    text: str,
    *,
    status: SampleStatus | None = None,
    program: str | None = None,
    overruled: Mapping[str, Collection[float | str]] | None = None,
) -> Sample:
    """The rollout as a sample of a Response; `text` is its answer to the task, which is what is scored. `overruled`:
    what its calls asked of the sampling and did not get."""
    return Sample(
        text=text,
        segments=segments_of(conversation) or None,
        status=status,
        program=program,
        usage=usage_of(conversation, overruled or {}),
    )


def usage_of(
    conversation: Conversation, overruled: Mapping[str, Collection[float | str]] = MappingProxyType({})
) -> Usage:
    return Usage(
        calls=len(conversation.calls),
        prompt_tokens=sum(len(call.prompt_ids) for call in conversation.calls),
        sampled_tokens=sum(len(call.ids) for call in conversation.calls),
        breaks=dict(sorted(conversation.breaks.items())),
        normalised=conversation.normalised_count,
        replayed=conversation.replayed,
        turns=max((len(call.path) for call in conversation.calls), default=0),
        overruled={name: tuple(values) for name, values in sorted(overruled.items())},
    )


def segments_of(conversation: Conversation) -> tuple[Segment, ...]:
    """One for each leaf of the tree, in the order of their first calls; a linear rollout is one.

    What calls have in common is trained in the first of their segments, and is the prompt of the others.
    """
    taken: set[int] = set()
    return tuple(_segment(path, taken) for path in _paths(conversation.calls))


def _paths(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Yield the path from the root to each call that sampled something and that no such call continues."""
    with_tokens = [call for call in calls if call.ids]
    gone_on_from = {call.parent.number for call in with_tokens if call.parent is not None}
    paths = [call.path for call in with_tokens if call.number not in gone_on_from]
    yield from sorted(paths, key=lambda path: [call.number for call in path])


def _segment(path: Sequence[Call], taken: set[int]) -> Segment:
    new = [call for call in path if call.number not in taken]
    taken.update(call.number for call in new)
    completion: list[int] = []
    spans: list[tuple[int, int]] = []
    turns: list[Turn] = []
    for call in new:
        completion += call.added if spans else ()
        spans.append((len(completion), len(completion) + len(call.ids)))
        completion += call.ids
        turns += [_turn(message, None) for message in call.tail]
        turns.append(_turn(call.message or {"role": "assistant", "content": ""}, len(spans) - 1, call.seconds))
    return Segment(
        prompt_ids=new[0].prompt_ids,
        completion_ids=tuple(completion),
        spans=tuple(spans),
        logprobs=tuple(logprob for call in new for logprob in call.logprobs),
        broke=new[0].broke,
        grammars=_grammars_of(new),
        turns=tuple(turns),
    )


def _grammars_of(calls: Sequence[Call]) -> tuple[SpanGrammar, ...]:
    """Return each grammar once, with the numbers of the calls that were held to it."""
    held: dict[str, list[int]] = {}
    texts = {}
    for number, call in enumerate(calls):
        if call.grammar is not None and call.ids:
            held.setdefault(call.grammar.sha256, []).append(number)
            texts[call.grammar.sha256] = call.grammar.text
    return tuple(SpanGrammar(text=texts[sha256], sha256=sha256, spans=tuple(of)) for sha256, of in held.items())


def _turn(message: Message, span: int | None, seconds: float | None = None) -> Turn:
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return Turn(
        role=message["role"],
        content=message["content"],
        reasoning=message.get("reasoning_content"),
        tool_calls=tuple(ToolCall(name=function["name"], arguments=function["arguments"]) for function in functions),
        span=span,
        seconds=None if seconds is None else round(seconds, 3),
    )
