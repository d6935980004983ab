"""A conversation as it is logged: every sampled token in exactly one segment, under its own context. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ratchet.conversation.conversation import Call, Conversation
from ratchet.conversation.messages import Message
from schemas.messages.response import BreakKind, RoleUsage, Sample, SampleStatus, Segment, ToolCall, Turn, Usage
from schemas.messages.work import SpanGrammar


@dataclass(frozen=True, slots=True)
class RolePart:
    """The part of a rollout that one role of its program played."""

    role: str
    version: str
    conversation: Conversation


def sample_of(
    conversation: Conversation,
    text: str,
    *,
    status: SampleStatus | None = None,
    program: str | None = None,
    overruled: Mapping[str, Collection[float | str]] | None = None,
    parts: Sequence[RolePart] = (),
) -> Sample:
    """The rollout as a sample of a Response; `text` is its answer to the task, which is what is scored. `overruled`:
    what its calls asked of the sampling and did not get. `parts`: of a program with roles all of them, in place of the
    conversation."""
    usage = usage_of_parts(parts, overruled or {}) if parts else usage_of(conversation, overruled or {})
    segments = segments_of_parts(parts) if parts else segments_of(conversation)
    return Sample(text=text, segments=segments or None, status=status, program=program, usage=usage)


def usage_of_parts(parts: Sequence[RolePart], overruled: Mapping[str, Collection[float | str]]) -> Usage:
    """Return what all roles took together, and the part of each."""
    taken = [usage_of(part.conversation) for part in parts]
    breaks: Counter[BreakKind] = sum((Counter(one.breaks) for one in taken), Counter())
    roles = {
        part.role: RoleUsage(
            adapter_version=part.version,
            calls=one.calls,
            prompt_tokens=one.prompt_tokens,
            sampled_tokens=one.sampled_tokens,
        )
        for part, one in zip(parts, taken, strict=True)
    }
    return Usage(
        calls=sum(one.calls for one in taken),
        prompt_tokens=sum(one.prompt_tokens for one in taken),
        sampled_tokens=sum(one.sampled_tokens for one in taken),
        breaks=dict(sorted(breaks.items())),
        normalised=sum(one.normalised for one in taken),
        replayed=sum(one.replayed for one in taken),
        turns=max(one.turns or 0 for one in taken),
        overruled={name: tuple(values) for name, values in sorted(overruled.items())},
        roles=roles,
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
    return tuple(segment for _, segment in _segments_by_number(conversation))


def segments_of_parts(parts: Sequence[RolePart]) -> tuple[Segment, ...]:
    """The segments of all roles, each of one role, in the order of their first calls."""
    found = [
        (number, segment.model_copy(update={"role": part.role, "adapter_version": part.version}))
        for part in parts
        for number, segment in _segments_by_number(part.conversation)
    ]
    return tuple(segment for _, segment in sorted(found, key=lambda one: one[0]))


def _segments_by_number(conversation: Conversation) -> Iterator[tuple[int, Segment]]:
    """Yield each segment with the number of the first call that is new in it."""
    taken: set[int] = set()
    for path in _paths(conversation.calls):
        first = next(call.number for call in path if call.number not in taken)
        yield first, _segment(path, taken)


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
