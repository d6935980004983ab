"""Applications' own scores of their answers: those in logs/feedback.jsonl, the last one of each sample.

In memory: a score for each sample of the agent that got feedback, and the last correction of each task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from ratchet.logs.names import FEEDBACK
from ratchet.logs.reader import LogReader, decode
from ratchet.logs.rows import FeedbackRow
from ratchet.logs.seals import NO_SEALS, SealBook
from ratchet.logs.segments import oldest_position
from schemas.records.adapter_card import DataRange
from services.trainer.data.range_sums import RangeSums


@dataclass(frozen=True, slots=True)
class FeedbackScores:
    """The feedback at byte `end` of the log; `ranges` are the bytes that were read, bad lines left out."""

    scores: Mapping[tuple[str, int], float] = field(default_factory=dict)
    ranges: tuple[DataRange, ...] = ()
    end: int = 0
    corrections: Mapping[str, str] = field(default_factory=dict)
    """The answer as it should have been, by task."""
    corrected_at: Mapping[str, datetime] = field(default_factory=dict)

    def score_of(self, task_id: str, sample: int) -> float | None:
        return self.scores.get((task_id, sample))


NO_FEEDBACK = FeedbackScores()


def read_feedback(logs_dir: Path, agent_id: str, until: int | None, seals: SealBook = NO_SEALS) -> FeedbackScores:
    """All feedback on an agent's samples, and all corrections.

    Of before byte `until` of the log, or of all there is now. What is strange by `seals` is left out. Raises
    JournalError if a segment is missing or damaged.
    """
    decoder, scores, ranges = msgspec.json.Decoder(FeedbackRow), dict[tuple[str, int], float](), RangeSums(FEEDBACK)
    if until is None and seals.mark is not None:
        until = seals.mark.end
    corrections, corrected_at = dict[str, str](), dict[str, datetime]()
    end = start = oldest_position(logs_dir, FEEDBACK)
    for line in LogReader(logs_dir, FEEDBACK, start, on_bad=lambda bad: None).whole_lines():
        if until is not None and line.position >= until:
            break
        ranges.add(line)
        end = line.end
        if seals.is_strange(line.position):
            continue
        try:
            given = decode(line.data, decoder)
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
        if given.agent_id == agent_id:
            scores[given.task_id, given.sample] = given.score
        if given.correction:  # also of what a big model answered in its place
            corrections[given.task_id], corrected_at[given.task_id] = given.correction, given.timestamp
    return FeedbackScores(scores, ranges.read_ranges(), end, corrections, corrected_at)
