"""One task as the logs tell it, from its admission to its Result. Reading blocks; the rest is pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from ratchet.bus.topology import RESPONSES
from ratchet.logs.groups import teaches_nothing
from ratchet.logs.trajectories import TrajectoryUnreadable, fill_segments
from schemas.api.tasks import Hop, HopName, LoggedSample, LoggedSegment, LoggedTurn, TaskHistory
from schemas.messages.response import Segment
from schemas.messages.result import Result
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator.ledger.index import Entry
from services.orchestrator.ledger.logged_task import logged_lines, logged_work
from services.orchestrator.tasks.intake import queue_of

SERVICE = "orchestrator"
MOST_SHOWN_BYTES = 64 * 1024 * 1024
"""Bytes of trajectories in one answer."""
TOO_LONG = "with the samples before it this would be too much for one answer: ratchet log show has it"
OF_WORK = TaskHistory.model_fields.keys() & Work.model_fields.keys() - {"samples"}
"""The fields that a history takes from its task: those of the same name."""
OF_LINE = LoggedSample.model_fields.keys() & Interaction.model_fields.keys() - {"status", "reason", "segments"}
"""The same of a sample and its line; a line's status and reason are its task's."""
NOTHING_UNREADABLE: Mapping[int, str] = MappingProxyType({})


def read_history(logs_dir: Path, known: Entry) -> TaskHistory:
    """Reads its lines where the index says they are: at once in the active file, else by unpacking up to one segment.

    Raises JournalError.
    """
    work = Work.decode(known.work) if known.work else logged_work(logs_dir, known)
    lines = logged_lines(logs_dir, known) if known.lines is not None else []
    return history(known, work, *_with_trajectories(logs_dir, lines))


def _with_trajectories(logs_dir: Path, lines: Sequence[Interaction]) -> tuple[list[Interaction], dict[int, str]]:
    """The lines with their segments, wherever they lie, and by sample why they can't be had."""
    found, unreadable, room = list[Interaction](), dict[int, str](), MOST_SHOWN_BYTES
    for line in lines:
        size = line.trajectory.size if line.trajectory else 0
        try:
            if size > room:
                raise TrajectoryUnreadable(line.trajectory.sha256 if line.trajectory else "", TOO_LONG)
            found.append(fill_segments(logs_dir, line))
            room -= size
        except TrajectoryUnreadable as error:
            found.append(line)
            unreadable[line.sample or 0] = str(error)
    return found, unreadable


def history(
    known: Entry, work: Work, lines: Sequence[Interaction], unreadable: Mapping[int, str] = NOTHING_UNREADABLE
) -> TaskHistory:
    """`unreadable`: by sample why its segments are not there."""
    result = Result.decode(known.result) if known.result else None
    last = lines[-1] if lines else None
    return TaskHistory(
        **{name: work.__dict__[name] for name in OF_WORK},
        sequence=known.sequence,
        state=result.status if result else "open",
        closed_at=result.metadata.timestamp if result else None,
        hops=hops(work, last),
        samples=[_sample(line, result, unreadable.get(line.sample)) for line in lines if line.sample is not None],
        engine=last.engine if last else None,
        adapter_sha256=last.adapter_sha256 if last else None,
        scoring_agent_id=last.scoring_agent_id if last else None,
        scorer=last.scorer if last else None,
        cascade=lines[0].cascade if lines else None,
        result=result,
    )


def hops(work: Work, last: Interaction | None) -> list[Hop]:
    """Return the hops without a gap: time that no service measured belongs to the last one."""
    queue = queue_of(work)
    if last is None:
        return [Hop(name="queued", service=queue, at=work.admitted_at, seconds=None, attempts=None)]
    if last.sample is None:
        return [Hop(name="queued", service=queue, at=work.admitted_at, seconds=last.latencies.total_s, attempts=None)]
    spent, tried = last.latencies, last.attempts
    measured: list[tuple[HopName, str, float, int | None]] = [
        ("queued", queue, spent.queue_s, None),
        ("generated", last.agent_id, spent.generate_s, tried.generate if tried else 1),
        ("awaiting_score", RESPONSES, spent.score_queue_s, None),
        ("scored", last.scoring_agent_id or "scorer", spent.score_s, tried.score if tried else 1),
    ]
    rest = max(0.0, spent.total_s - sum(seconds for _, _, seconds, _ in measured))
    found, at = list[Hop](), work.admitted_at
    for name, service, seconds, attempts in [*measured, ("settled", SERVICE, rest, None)]:
        found.append(Hop(name=name, service=service, at=at, seconds=seconds, attempts=attempts))
        at += timedelta(seconds=seconds)
    return found


def _sample(line: Interaction, result: Result | None, unreadable: str | None) -> LoggedSample:
    assert line.sample is not None
    return LoggedSample(
        **{name: line.__dict__[name] for name in OF_LINE},
        index=line.sample,
        text=line.response or "",
        status=line.score_status,
        reason=line.score_reason,
        tokens=line.sampled_tokens,
        chosen=result is not None and result.sample == line.sample,
        segments=None if line.segments is None else [_segment(segment) for segment in line.segments],
        unreadable=unreadable,
        ended=line.sample_status,
        says=line.sample_says,
        untaught=teaches_nothing(line),
        parts=line.score_parts,
    )


def _segment(segment: Segment) -> LoggedSegment:
    turns = [
        LoggedTurn(
            role=turn.role,
            content=turn.content,
            reasoning=turn.reasoning,
            tool_calls=list(turn.tool_calls),
            tokens=segment.tokens_of(turn),
            prompt_tokens=segment.tokens_before(turn),
            seconds=turn.seconds,
        )
        for turn in segment.turns
    ]
    return LoggedSegment(
        broke=segment.broke,
        role=segment.role,
        adapter_version=segment.adapter_version,
        prompt_tokens=len(segment.prompt_ids),
        sampled_tokens=segment.sampled_tokens,
        given_tokens=segment.given_tokens,
        turns=turns,
    )
