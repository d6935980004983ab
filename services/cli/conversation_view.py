"""`ratchet log show`: one task as it was logged, its conversations turn by turn, and whether they may be trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.text import Text

from ratchet.logs.groups import teaches_nothing
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import read
from ratchet.logs.rows import SampleRow
from ratchet.logs.trajectories import TrajectoryUnreadable, fill_segments
from schemas.messages.base import DecodeError
from schemas.messages.response import Segment, Turn
from schemas.records.interaction import Interaction

INDENT = "  "
ROLE_WIDTH = 10


def logged_lines(folder: Path, task_id: str) -> list[tuple[str, Interaction]]:
    """The lines of a task, as they are and decoded. Reads the whole log."""
    decoder, found = msgspec.json.Decoder(SampleRow), []
    for line in read(folder, INTERACTIONS):
        if decoder.decode(line.data).task_id == task_id:
            try:
                found.append((line.data.decode(), Interaction.decode(line.data)))
            except DecodeError:
                continue
    return found


def render_task(lines: Sequence[Interaction], folder: Path) -> Iterator[Text]:
    """`folder`: of the logs, with the trajectories of long conversations."""
    for logged in lines:
        yield _head(logged)
        try:
            line = fill_segments(folder, logged)
        except TrajectoryUnreadable as error:
            yield Text(f"{INDENT}{error}", style="yellow")
            line = logged
        if line.sample is None:
            yield Text(f"{INDENT}{line.status}: {line.reason}")
        elif line.segments is None:
            yield from _one_call(line)
        else:
            yield from _conversation(line.segments)
            yield _turn(Turn(role="answer", content=line.response or ""), "")


def _head(line: Interaction) -> Text:
    score = "no score" if line.score is None else f"score {line.score:.3f}"
    sample = "" if line.sample is None else f" · sample {line.sample} of {line.group_size} (counted from 0)"
    rollout = [line.program, line.sample_status]
    below = [line.sample_says, line.usage and _usage(line), line.sample is not None and _lesson(line)]
    return Text.assemble(
        (line.task_id, "bold"),
        f"{sample} · {line.agent_id} {line.adapter_version} · {score}",
        *(f" · {said}" for said in rollout if said),
        *(f"\n{INDENT}{said}" for said in below if said),
    )


def _lesson(line: Interaction) -> str:
    why = teaches_nothing(line)
    return "may be trained on" if why is None else f"not trained on: {why}"


def _usage(line: Interaction) -> str:
    usage = line.usage
    assert usage is not None
    breaks = ", ".join(f"{count} {kind}" for kind, count in usage.breaks.items()) or "no breaks"
    logged = line.sampled_tokens or 0
    parts = [f"{_many(usage.calls, 'call')}, {_many(usage.sampled_tokens, 'token')} sampled, {logged:,} in the log"]
    parts += [] if usage.seconds is None else [f"{usage.seconds:,.1f} s"]
    parts.append(breaks)
    parts += [
        f"{role} {one.adapter_version}: {_many(one.calls, 'call')}, {_many(one.sampled_tokens, 'token')}"
        for role, one in usage.roles.items()
    ]
    parts += [f"{usage.normalised} answers normalised"] * bool(usage.normalised)
    parts += [f"{usage.replayed} replayed"] * bool(usage.replayed)
    return "; ".join(parts)


def _one_call(line: Interaction) -> Iterator[Text]:
    asked = (
        [("user", line.input)] if isinstance(line.input, str) else [(one.role, one.readable_text) for one in line.input]
    )
    for role, said in asked:
        yield _turn(Turn(role=role, content=said), "")
    tokens = line.sampled_tokens
    yield _turn(Turn(role="assistant", content=line.response or ""), "" if tokens is None else _many(tokens, "token"))


def _conversation(segments: Sequence[Segment]) -> Iterator[Text]:
    for number, segment in enumerate(segments, 1):
        why = f" · {segment.broke}" if segment.broke else ""
        why += f" · {segment.role} {segment.adapter_version}" if segment.role else ""
        counts = (
            f"{_many(len(segment.prompt_ids), 'token')} before, {segment.sampled_tokens:,} sampled, "
            f"{segment.given_tokens:,} given in between"
        )
        yield Text(f"{INDENT}segment {number} of {len(segments)}{why} · {counts}", style="dim")
        for turn in segment.turns:
            yield _turn(turn, _cost(segment, turn))


def _cost(segment: Segment, turn: Turn) -> str:
    """Return the cost of the call that sampled it."""
    tokens, before = segment.tokens_of(turn), segment.tokens_before(turn)
    if tokens is None or before is None:
        return ""
    took = "" if turn.seconds is None else f", {turn.seconds:,.1f} s"
    return f"{_many(tokens, 'token')} behind {before:,}{took}"


def _turn(turn: Turn, tokens: str) -> Text:
    text = [turn.content] if turn.content else []
    text += [f"{call.name}({call.arguments})" for call in turn.tool_calls]
    if turn.reasoning:
        text.insert(0, f"({turn.reasoning})")
    margin = " " * (len(INDENT) + ROLE_WIDTH)
    shown = "\n".join(text).replace("\n", f"\n{margin}")
    role = f"{INDENT}{turn.role:<{ROLE_WIDTH}}"
    return Text.assemble((role, "bold" if tokens else ""), shown, (f"  [{tokens}]" if tokens else "", "green"))


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
