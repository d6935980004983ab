"""The lines of a task become a chat completion, whole or in chunks: the best of the group first. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratchet.dialects.chat import DONE, FIRST_DELTA, begin_chunk, calls_delta, write_chunk, write_usage
from ratchet.dialects.dialect import Parsed
from ratchet.logs.best_answer import rank_answers
from ratchet.logs.tenants import own_id
from ratchet.openai.chat import (
    ChatAnswer,
    ChatChoice,
    ChatCompletion,
    ChoiceLogprobs,
    RatchetExtras,
    TokenLogprob,
    Usage,
)
from ratchet.openai.tools import answered_calls
from ratchet.rollouts.parsing import PlainParser, installed_parsers
from schemas.messages.task import Tool
from schemas.records.interaction import Interaction

WORD = re.compile(r"\s*\S+|\s+$")
MOST_DELTAS = 200
"""Pieces of one choice: a long answer comes in longer pieces."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request's wishes for the answer.

    `logprobs`: those of each choice's tokens; `one_call`: at most; `overruled`: wishes that are not met.
    """

    choices: int = 1
    logprobs: bool = False
    one_call: bool = False
    overruled: Mapping[str, float | str] = field(default_factory=dict)


def completion(lines: Sequence[Interaction], wanted: Wanted) -> ChatCompletion:
    """`lines`: all samples of one answered task, in their order."""
    chosen = _best(lines, wanted.choices)
    answers = [_answer(line, index, wanted) for index, line in enumerate(chosen)]
    return ChatCompletion(
        **_head(lines[0]),
        choices=[
            ChatChoice(
                index=index,
                message=answer,
                finish_reason="tool_calls" if answer.tool_calls else line.finish_reason or "stop",
                stop_reason=line.stopped_at,
                logprobs=_logprobs(line) if wanted.logprobs else None,
            )
            for index, (line, answer) in enumerate(zip(chosen, answers, strict=True))
        ],
        usage=_usage(chosen),
        ratchet=_extras(lines, chosen, wanted.overruled),
    )


def stream_completion(whole: ChatCompletion, *, usage: bool) -> Iterator[str]:
    """Yield the same as events: for each choice the role, its text in pieces, its calls, its end; then the usage."""
    head = {name: getattr(whole, name) for name in ("id", "created", "model", "system_fingerprint")}
    begun = begin_chunk(head)
    last = begin_chunk(head | {"ratchet": whole.ratchet.model_dump()})
    for choice in whole.choices:
        index, answer = choice.index, choice.message
        yield write_chunk(begun, FIRST_DELTA, index)
        for name in ("reasoning_content", "content"):
            for piece in pieces(getattr(answer, name) or ""):
                yield write_chunk(begun, {name: piece}, index)
        if answer.tool_calls:
            yield write_chunk(begun, calls_delta([call.model_dump() for call in answer.tool_calls]), index)
        end = choice.model_dump(include={"finish_reason", "stop_reason", "logprobs"})
        yield write_chunk(last if choice is whole.choices[-1] else begun, {}, index, **end)
    if usage:
        yield write_usage(begun, whole.usage.model_dump())
    yield DONE


def parse_answer(text: str, tools: Sequence[Tool]) -> Parsed:
    """Parse with the parser that finds calls of tools that were offered; a text that calls none of them stays text."""
    offered = {tool.function.name for tool in tools}
    for parser in installed_parsers().values() if offered else ():
        found = parser().parse(text, whole=True)
        if found.calls and offered.issuperset(name for name, _ in found.calls):
            return found
    return PlainParser().parse(text, whole=True)


def tells_tokens(lines: Sequence[Interaction]) -> bool:
    """Tell whether their log-probabilities are known: not of an agent without tokens, or with several calls."""
    return all(line.token_texts is not None and line.logprobs is not None for line in lines)


def _answer(line: Interaction, choice: int, wanted: Wanted) -> ChatAnswer:
    said = parse_answer(line.response or "", line.tools or ())
    calls = said.calls[:1] if wanted.one_call else said.calls
    ids = [_call_id(line, choice, number) for number in range(len(calls))]
    return ChatAnswer(
        content=said.content or (None if calls else ""),
        reasoning_content=said.reasoning or None,
        tool_calls=answered_calls(ids, calls) if calls else None,
    )


def _call_id(line: Interaction, choice: int, number: int) -> str:
    """The same whenever the answer is asked for again."""
    return f"call_{hashlib.sha256(f'{choice} {number} {line.sample} {line.task_id}'.encode()).hexdigest()[:24]}"


def _logprobs(line: Interaction) -> ChoiceLogprobs:
    told = zip(line.token_texts or (), line.logprobs or (), strict=True)
    return ChoiceLogprobs(
        content=[
            TokenLogprob(token=text, logprob=logprob, bytes=list(text.encode("utf-8", "surrogatepass")))
            for text, logprob in told
        ]
    )


def pieces(text: str) -> Iterator[str]:
    """Word by word, a long text several words at a time; together they are the text."""
    words = WORD.findall(text)
    size = max(1, len(words) // MOST_DELTAS)
    for start in range(0, len(words), size):
        yield "".join(words[start : start + size])


def _best(lines: Sequence[Interaction], count: int) -> list[Interaction]:
    """Return the best answers. Where fewer were sampled than wanted (greedy answers are equal), they are repeated."""
    found = rank_answers(lines)
    return [found[index % len(found)] for index in range(count)]


def _head(line: Interaction) -> dict[str, Any]:
    weights = line.adapter_sha256
    return {
        "id": f"chatcmpl-{own_id(line.task_id)}",
        "created": int(line.timestamp.timestamp()),
        "model": f"{line.agent_id}@{line.adapter_version}",
        "system_fingerprint": f"adapter-{weights[:12]}" if weights else line.engine,
    }


def _usage(chosen: Sequence[Interaction]) -> Usage:
    prompt = len(chosen[0].prompt_ids or ())
    completion = sum(line.sampled_tokens or 0 for line in chosen)
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def _extras(
    lines: Sequence[Interaction], chosen: Sequence[Interaction], overruled: Mapping[str, float | str]
) -> RatchetExtras:
    best = chosen[0]
    return RatchetExtras(
        task_id=own_id(best.task_id),
        agent_id=best.agent_id,
        adapter_version=best.adapter_version,
        adapter_sha256=best.adapter_sha256,
        score=best.score,
        scores=[line.score for line in chosen],
        samples=[line.sample or 0 for line in chosen],
        group_size=len(lines),
        sampled_tokens=sum(line.sampled_tokens or 0 for line in lines),
        overruled=dict(overruled) or None,
    )
