"""The lines of a task become a chat completion, whole or in chunks: the best of the group first. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ratchet.logs.best_answer import ranked
from ratchet.openai.chat import (
    ChatAnswer,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatDelta,
    ChunkChoice,
    RatchetExtras,
    Usage,
)
from schemas.records.interaction import Interaction

WORD = re.compile(r"\s*\S+|\s+$")
MOST_DELTAS = 200
"""Of one choice: a long answer comes in longer pieces."""


def completion(lines: Sequence[Interaction], choices: int) -> ChatCompletion:
    """`lines`: all samples of one answered task, in their order."""
    chosen = _best(lines, choices)
    return ChatCompletion(
        **_head(lines[0]),
        choices=[
            ChatChoice(
                index=index,
                message=ChatAnswer(content=line.response or ""),
                finish_reason=line.finish_reason or "stop",
            )
            for index, line in enumerate(chosen)
        ],
        usage=_usage(chosen),
        ratchet=_extras(lines, chosen),
    )


def chunks(lines: Sequence[Interaction], choices: int, *, usage: bool) -> Iterator[ChatChunk]:
    """The same as a stream: for each choice the role, its text in pieces, its end; then the usage, where asked for."""
    chosen, head = _best(lines, choices), _head(lines[0])
    for index, line in enumerate(chosen):
        yield _chunk(head, index, ChatDelta(role="assistant", content=""))
        for piece in pieces(line.response or ""):
            yield _chunk(head, index, ChatDelta(content=piece))
        last = index == len(chosen) - 1
        end = ChunkChoice(index=index, delta=ChatDelta(), finish_reason=line.finish_reason or "stop")
        yield ChatChunk(**head, choices=[end], ratchet=_extras(lines, chosen) if last else None)
    if usage:
        yield ChatChunk(**head, choices=[], usage=_usage(chosen))


def pieces(text: str) -> Iterator[str]:
    """Word by word, a long text several words at a time; together they are the text."""
    words = WORD.findall(text)
    size = max(1, len(words) // MOST_DELTAS)
    for start in range(0, len(words), size):
        yield "".join(words[start : start + size])


def _chunk(head: dict[str, Any], index: int, delta: ChatDelta) -> ChatChunk:
    return ChatChunk(**head, choices=[ChunkChoice(index=index, delta=delta)])


def _best(lines: Sequence[Interaction], count: int) -> list[Interaction]:
    """Where fewer were sampled than are wanted (greedy answers are all equal), they are repeated."""
    found = ranked(lines)
    return [found[index % len(found)] for index in range(count)]


def _head(line: Interaction) -> dict[str, Any]:
    weights = line.adapter_sha256
    return {
        "id": f"chatcmpl-{line.task_id}",
        "created": int(line.timestamp.timestamp()),
        "model": f"{line.agent_id}@{line.adapter_version}",
        "system_fingerprint": f"adapter-{weights[:12]}" if weights else line.engine,
    }


def _usage(chosen: Sequence[Interaction]) -> Usage:
    prompt = len(chosen[0].prompt_ids or ())
    completion = sum(line.sampled_tokens or 0 for line in chosen)
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def _extras(lines: Sequence[Interaction], chosen: Sequence[Interaction]) -> RatchetExtras:
    best = chosen[0]
    return RatchetExtras(
        task_id=best.task_id,
        agent_id=best.agent_id,
        adapter_version=best.adapter_version,
        adapter_sha256=best.adapter_sha256,
        score=best.score,
        scores=[line.score for line in chosen],
        samples=[line.sample or 0 for line in chosen],
        group_size=len(lines),
        sampled_tokens=sum(line.sampled_tokens or 0 for line in lines),
    )
