"""Reads a window of the log of interactions once and sorts its samples into groups, counting all it leaves out.

A sample an application gave feedback on has its score instead of the scorer's (feedback_scores.py).

Memory: the groups that are still open, those kept so far as positions and scores, and eight bytes for every group seen
(so that nothing is used twice). Token ids are not read here.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from ratchet.logs.reader import BadLine, Line, LogReader, decode
from ratchet.logs.start_offset import read_start_offsets
from schemas.records.adapter_card import DataRange
from services.trainer.feedback_scores import NO_FEEDBACK, FeedbackScores
from services.trainer.filters import DataPolicy, LoggedGroup, LoggedSampleFacts, Reason, group_reason, sample_reason
from services.trainer.range_sums import RangeSums
from services.trainer.score_noise import ScoreNoise

LOG_NAME = "agent_interactions"
VALIDATION = "validation:"
NOTHING = (b"", b"null", b"[]")


class LoggedArm(msgspec.Struct):
    experiment_id: str | None = None


class LoggedScorer(msgspec.Struct, frozen=True):
    id: str
    revision: str
    rubric_sha256: str | None = None


class LoggedSampling(msgspec.Struct):
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    @property
    def filtered(self) -> bool:
        return self.temperature == 0.0 or self.top_p != 1.0 or self.top_k != 0


class LoggedLine(msgspec.Struct):
    """The fields of an interaction the filters need. Raw fields are not decoded, only known to be there."""

    task_id: str
    agent_id: str
    adapter_version: str
    timestamp: datetime
    arm: LoggedArm
    sampling: LoggedSampling
    group_size: int
    sample: int | None
    score: float | None
    response: msgspec.Raw = msgspec.Raw()
    adapter_sha256: str | None = None
    engine: str | None = None
    finish_reason: str | None = None
    scorer: LoggedScorer | None = None
    prompt_ids: msgspec.Raw = msgspec.Raw()
    completion_ids: msgspec.Raw = msgspec.Raw()
    logprobs: msgspec.Raw = msgspec.Raw()


@dataclass(frozen=True, slots=True)
class KeptGroup:
    """A group that may teach: where its usable samples are, and their scores, in the order of the samples.

    `feedback`: how many of the scores are an application's.
    """

    version: str
    scorer: int
    temperature: float
    at: datetime
    positions: array[int]
    scores: array[float]
    feedback: int = 0


@dataclass(slots=True)
class Scan:
    """What one reading found. Scorers are numbered; `newest_scorer` gave the last score in the window."""

    lines: int = 0
    groups: list[KeptGroup] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    scorers: list[LoggedScorer | None] = field(default_factory=list)
    newest_scorer: int = 0
    noise: ScoreNoise = field(default_factory=ScoreNoise)
    ranges: tuple[DataRange, ...] = ()

    @property
    def bad_lines(self) -> int:
        return self.dropped[f"lines.{Reason.BAD_LINE}"]

    def drop(self, kind: str, reason: Reason, count: int = 1) -> None:
        self.dropped[f"{kind}.{reason}"] += count


class JournalScan:
    """One pass over the bytes `since` to before `until` of the log in a folder."""

    def __init__(self, logs_dir: Path, policy: DataPolicy, feedback: FeedbackScores = NO_FEEDBACK) -> None:
        self._logs_dir = logs_dir
        self._policy = policy
        self._feedback = feedback
        self._decoder = msgspec.json.Decoder(LoggedLine)
        self._open: dict[int, LoggedGroup] = {}
        self._closed: set[int] = set()
        self._scorers: dict[LoggedScorer | None, int] = {}
        self._found = Scan()

    def read(self, since: int, until: int | None) -> Scan:
        """Raises JournalError if a segment is missing or damaged, or no line starts at `since`.

        What retention has removed since is left out; the ranges say what was read.
        """
        ranges = RangeSums(LOG_NAME)
        since = max(since, read_start_offsets(self._logs_dir).begin(LOG_NAME))
        for line in self._lines(since, until):
            ranges.add(line)
            self._take(line)
        for group in self._open.values():
            self._close(group)
        self._found.ranges = (*ranges.closed(), *self._feedback.ranges)
        self._found.scorers = list(self._scorers)
        return self._found

    def _lines(self, since: int, until: int | None) -> Iterator[Line]:
        for line in LogReader(self._logs_dir, LOG_NAME, since, on_bad=self._bad).whole_lines():
            if until is not None and line.position >= until:
                return
            yield line

    def _bad(self, _: BadLine) -> None:
        self._found.lines += 1
        self._found.drop("lines", Reason.BAD_LINE)

    def _take(self, line: Line) -> None:
        self._found.lines += 1
        try:
            logged = decode(line.data, self._decoder)
        except (msgspec.DecodeError, ValueError, RecursionError):
            self._found.drop("lines", Reason.BAD_LINE)
            return
        if (reason := self._line_reason(logged)) is not None:
            self._found.drop("lines", reason)
        else:
            self._add(line.position, logged)

    def _line_reason(self, logged: LoggedLine) -> Reason | None:
        if logged.agent_id != self._policy.agent_id:
            return Reason.OTHER_AGENT
        if (logged.arm.experiment_id or "").startswith(VALIDATION):
            return Reason.VALIDATION
        return Reason.NO_SAMPLE if logged.sample is None else None

    def _add(self, position: int, logged: LoggedLine) -> None:
        key = hash((logged.task_id, logged.adapter_version))
        sample = logged.sample
        assert sample is not None
        group = self._open.get(key)
        if key in self._closed or (group is not None and sample in group.samples):
            self._found.drop("samples", Reason.DUPLICATE)
            return
        if group is None:
            group = self._open[key] = self._begin(logged)
        group.samples[sample] = _facts(position, logged, self._feedback.score_of(logged.task_id, sample))
        if group.whole:
            del self._open[key]
            self._closed.add(key)
            self._close(group)

    def _begin(self, logged: LoggedLine) -> LoggedGroup:
        scorer = self._scorers.setdefault(logged.scorer, len(self._scorers))
        return LoggedGroup(
            version=logged.adapter_version,
            sha256=logged.adapter_sha256,
            engine=logged.engine,
            scorer=scorer,
            temperature=logged.sampling.temperature,
            filtered=logged.sampling.filtered,
            size=logged.group_size,
            at=logged.timestamp,
        )

    def _close(self, group: LoggedGroup) -> None:
        found, policy = self._found, self._policy
        samples = [group.samples[index] for index in sorted(group.samples)]
        self._note_scorer(group, samples)
        reasons = [sample_reason(sample, policy) for sample in samples]
        usable = [sample for sample, reason in zip(samples, reasons, strict=True) if reason is None]
        scores = [sample.taught for sample in usable if sample.taught is not None]
        if (why := group_reason(group, scores, policy)) is not None:
            found.drop("groups", why)
            found.drop("samples", why, len(samples))
            return
        for reason in filter(None, reasons):
            found.drop("samples", reason)
        positions = array("q", (sample.position for sample in usable))
        feedback = sum(sample.feedback is not None for sample in usable)
        found.groups.append(
            KeptGroup(group.version, group.scorer, group.temperature, group.at, positions, array("d", scores), feedback)
        )

    def _note_scorer(self, group: LoggedGroup, samples: list[LoggedSampleFacts]) -> None:
        """By what the scorer said itself: that an application disagrees is no noise of the scorer's."""
        scored = [(sample.text, sample.score) for sample in samples if sample.score is not None]
        if scored:
            self._found.newest_scorer = group.scorer
            self._found.noise.add(group.scorer, scored)


def _facts(position: int, logged: LoggedLine, feedback: float | None) -> LoggedSampleFacts:
    tokens = (logged.prompt_ids, logged.completion_ids, logged.logprobs)
    return LoggedSampleFacts(
        position=position,
        score=logged.score,
        feedback=feedback,
        truncated=logged.finish_reason == "length",
        has_tokens=not any(bytes(raw) in NOTHING for raw in tokens),
        text=hash(bytes(logged.response)),
    )
