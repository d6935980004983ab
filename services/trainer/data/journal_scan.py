"""Reads a window of the log of interactions once and sorts its samples into groups, counting all it leaves out.

A sample an application gave feedback on has its score instead of the scorer's (feedback_scores.py).

Memory: the groups that are still open, those kept so far as positions and scores, and eight bytes for every group seen
(so that nothing is used twice). Token ids are not read here.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from ratchet.adapters.evaluations import logged_input_sha256
from ratchet.adapters.taught_logs import is_kept, logged_words_key
from ratchet.logs.best_answer import NOT_THERE, is_censored
from ratchet.logs.groups import Groups
from ratchet.logs.names import INTERACTIONS, is_own
from ratchet.logs.quarantine import BadLine
from ratchet.logs.reader import Line, LogReader, decode, end_of_log
from ratchet.logs.rows import ScorerRow, SelectionRow
from ratchet.logs.seals import NO_SEALS, SealBook, is_tombstone
from ratchet.logs.segments import read_start_offsets, sealed_segments
from ratchet.logs.tenants import tenant_of
from ratchet.logs.trajectories import TrajectoryUnreadable, segments_at
from schemas.messages.reward import NOT_MENTIONED, ScoreStatus
from schemas.records.adapter_card import DataRange
from services.trainer.data.demonstration_places import FULL_MARKS, MOST_PLACES, DemonstrationPlace, DemonstrationPlaces
from services.trainer.data.feedback_scores import NO_FEEDBACK, FeedbackScores
from services.trainer.data.filters import (
    DataPolicy,
    LoggedGroup,
    LoggedSampleFacts,
    Reason,
    group_reason,
    is_other_base,
    sample_reason,
    taught_scores,
    with_alone,
)
from services.trainer.data.range_sums import RangeSums
from services.trainer.data.score_noise import ScoreNoise

SHARE_EVERY_BYTES = 1024 * 1024
NOTHING = (b"", b"null", b"[]")
UNSCORABLE: ScoreStatus = "unscorable"


@dataclass(frozen=True, slots=True)
class KeptGroup:
    """A group that may teach: where its usable samples are, and their scores, in the order of the samples.

    `prompt`: the key of its words. `programs` made them; empty where all were by the same, or by none. `role`: of
    a program with roles, the one whose segments teach. `feedback`: how many of the scores are an application's;
    `unscorable`: how many answers had none.
    """

    version: str
    scorer: int
    temperature: float
    at: datetime
    positions: array[int]
    scores: array[float]
    prompt: int = 0
    programs: tuple[str | None, ...] = ()
    role: str | None = None
    feedback: int = 0
    unscorable: int = 0

    @property
    def made_by(self) -> tuple[str | None, ...]:
        """The program of each score."""
        return self.programs or (None,) * len(self.scores)


@dataclass(slots=True)
class Scan:
    """The findings of one reading. Scorers are numbered; `newest_scorer` gave the last score in the window."""

    lines: int = 0
    groups: list[KeptGroup] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    scorers: list[ScorerRow | None] = field(default_factory=list)
    newest_scorer: int = 0
    noise: ScoreNoise = field(default_factory=ScoreNoise)
    ranges: tuple[DataRange, ...] = ()
    demonstrations: DemonstrationPlaces = field(default_factory=DemonstrationPlaces)

    @property
    def bad_lines(self) -> int:
        return self.dropped[f"lines.{Reason.BAD_LINE}"]

    def drop(self, kind: str, reason: Reason, count: int = 1) -> None:
        self.dropped[f"{kind}.{reason}"] += count


class JournalScan:
    """One pass over the bytes `since` to before `until` of the log in a folder."""

    def __init__(
        self,
        logs_dir: Path,
        policy: DataPolicy,
        feedback: FeedbackScores = NO_FEEDBACK,
        *,
        seals: SealBook = NO_SEALS,
        on_share: Callable[[float], None] = lambda share: None,
    ) -> None:
        """`seals`: of the log, what it says is strange teaches nothing. `on_share` is told how much is read."""
        self._seals = seals
        self._on_share = on_share
        self._logs_dir = logs_dir
        self._policy = policy
        self._feedback = feedback
        self._decoder = msgspec.json.Decoder(SelectionRow)
        self._groups = Groups[int, LoggedSampleFacts]()
        self._begun: dict[int, LoggedGroup] = {}
        self._closed: set[int] = set()
        self._scorers: dict[ScorerRow | None, int] = {}
        self._once: dict[tuple[str | None, ...], tuple[str | None, ...]] = {}
        """The programs of groups, each tuple kept once."""
        self._found = Scan(demonstrations=DemonstrationPlaces(min(policy.max_groups, MOST_PLACES)))

    def read(self, since: int, until: int | None) -> Scan:
        """Raises JournalError if a segment is missing or damaged, or no line starts at `since`.

        What retention has removed since is left out; the ranges say what was read.
        """
        ranges = RangeSums(INTERACTIONS)
        if until is None and self._seals.mark is not None:
            until = self._seals.mark.end
        since = max(since, read_start_offsets(self._logs_dir).begin(INTERACTIONS))
        for line in self._lines(since, until):
            ranges.add(line)
            self._take(line)
        for key, samples in self._groups.rest():
            self._close(self._begun[key], samples)
        late = self._late_ranges(since)
        self._found.ranges = (*ranges.read_ranges(), *late, *self._feedback.ranges)
        self._found.scorers = list(self._scorers)
        return self._found

    def _lines(self, since: int, until: int | None) -> Iterator[Line]:
        end = end_of_log(self._logs_dir, INTERACTIONS) if until is None else until
        told = since
        for line in LogReader(self._logs_dir, INTERACTIONS, since, on_bad=self._bad).whole_lines():
            if until is not None and line.position >= until:
                return
            if line.end - told >= SHARE_EVERY_BYTES:
                told = line.end
                self._on_share(min(1.0, (told - since) / max(1, end - since)))
            yield line

    def _late_ranges(self, since: int) -> tuple[DataRange, ...]:
        """Note the corrections that came in since then, of tasks that lie before; return the lines of these."""
        ranges, begin = RangeSums(INTERACTIONS), read_start_offsets(self._logs_dir).begin(INTERACTIONS)
        given = self._feedback.corrected_at if "correction" in self._policy.sources and since > begin else {}
        newest = [one.start for one in sealed_segments(self._logs_dir, INTERACTIONS) if begin < one.start < since]
        began = [row.timestamp for _, row in self._rows(max(newest, default=begin), since)][-1:] if given else []
        late = {task_id for task_id, at in given.items() if began and at >= began[0]}
        for line, row in self._rows(begin, since) if late else ():
            if row.task_id in late and not self._seals.is_strange(line.position) and self._line_reason(row) is None:
                late.remove(row.task_id)
                ranges.add(line)
                self._note_demonstration(line.position, row)
        return ranges.read_ranges()

    def _rows(self, since: int, until: int) -> Iterator[tuple[Line, SelectionRow]]:
        for line in LogReader(self._logs_dir, INTERACTIONS, since, on_bad=lambda bad: None).whole_lines():
            if line.position >= until:
                return
            with suppress(msgspec.DecodeError, ValueError, RecursionError):
                yield line, decode(line.data, self._decoder)

    def _bad(self, _: BadLine) -> None:
        self._found.lines += 1
        self._found.drop("lines", Reason.BAD_LINE)

    def _take(self, line: Line) -> None:
        self._found.lines += 1
        if is_tombstone(line.data) or self._seals.is_strange(line.position):
            self._found.drop("lines", Reason.ERASED if is_tombstone(line.data) else Reason.STRANGE)
            return
        try:
            logged = decode(line.data, self._decoder)
        except (msgspec.DecodeError, ValueError, RecursionError):
            self._found.drop("lines", Reason.BAD_LINE)
            return
        if (reason := self._line_reason(logged)) is not None:
            self._found.drop("lines", reason)
        else:
            self._add(line.position, logged)
            self._note_demonstration(line.position, logged)

    def _note_demonstration(self, position: int, logged: SelectionRow) -> None:
        """Note it for a task that the model was asked itself: what programs make of a task is no prompt of it. Of a
        program's answer that a person edited the line has the prompt, which is its first role's."""
        if is_other_base(logged.engine, self._policy.base_revision):
            return  # the prompt is in its tokens
        is_edited = bytes(logged.edited) not in NOTHING and logged.agent_id == self._policy.agent_id
        if is_edited and "approval" in self._policy.sources:
            self._found.demonstrations.add(bytes(logged.input), DemonstrationPlace(position, "approval"))
            return
        if logged.program is not None or bytes(logged.prompt_ids) in NOTHING:
            return
        correction = self._feedback.corrections.get(logged.task_id) if "correction" in self._policy.sources else None
        if correction is not None:
            self._found.demonstrations.add(bytes(logged.input), DemonstrationPlace(position, "correction", correction))
            return
        has_reference = logged.reference_score is not None and "reference" in self._policy.sources
        if has_reference and (logged.reference_score or 0.0) >= FULL_MARKS:
            self._found.demonstrations.add(bytes(logged.input), DemonstrationPlace(position, "reference"))
        elif (text := _answer_of_big(logged)) is not None and "big_model" in self._policy.sources:
            self._found.demonstrations.add(bytes(logged.input), DemonstrationPlace(position, "big_model", text))
        elif has_reference and logged.sample == 0:  # whose line has what a cascade's big model answered
            self._found.demonstrations.add(bytes(logged.input), None)

    def _line_reason(self, logged: SelectionRow) -> Reason | None:
        if logged.agent_id != self._policy.agent_id and _role_of(logged, self._policy.agent_id) is None:
            return Reason.OTHER_AGENT
        if is_own(logged.arm.experiment_id):
            return Reason.VALIDATION
        if self._policy.research is not None:
            researcher = logged.registered_agent, tenant_of(logged.task_id)
            if logged.kept_apart != "research" or self._policy.research != researcher:
                return Reason.NOT_RESEARCH
        elif logged.kept_apart:
            return Reason.OTHER_TENANT
        if logged.status == "cancelled":
            return Reason.CANCELLED
        if is_censored(logged.select):
            return Reason.FIRST_PASSING
        if self._policy.held_out and logged_input_sha256(bytes(logged.input)) in self._policy.held_out:
            return Reason.EVALUATION
        share = self._policy.replay_share
        if share and is_kept(logged_words_key(bytes(logged.input)), share):
            return Reason.REPLAY
        return Reason.NO_SAMPLE if logged.sample is None else None

    def _add(self, position: int, logged: SelectionRow) -> None:
        role = _role_of(logged, self._policy.agent_id)
        key = hash((logged.task_id, logged.adapter_version))
        sample = logged.sample
        assert sample is not None
        if key in self._closed or sample in self._groups.begun_samples(key):
            self._found.drop("samples", Reason.DUPLICATE)
            return
        group = self._begun.get(key)
        if group is None:
            group = self._begun[key] = self._begin(logged, role)
        facts = _facts(position, logged, role, self._feedback.score_of(logged.task_id, sample))
        if (samples := self._groups.add(key, sample, group.size, facts)) is not None:
            del self._begun[key]
            self._closed.add(key)
            group.whole = True
            self._close(group, samples)

    def _begin(self, logged: SelectionRow, role: str | None) -> LoggedGroup:
        """`role`: that the agent played. The engine that is logged is that of the agent whose task it was."""
        played = (logged.arm.roles or {})[role] if role is not None else logged
        scorer = self._scorers.setdefault(logged.scorer, len(self._scorers))
        return LoggedGroup(
            version=played.adapter_version,
            sha256=played.adapter_sha256,
            engine=logged.engine if played.agent_id == logged.agent_id else None,
            scorer=scorer,
            temperature=logged.sampling.temperature,
            filtered=logged.sampling.filtered,
            size=logged.group_size,
            at=logged.timestamp,
            prompt=logged_words_key(bytes(logged.input)),
            role=role,
        )

    def _close(self, group: LoggedGroup, samples: list[LoggedSampleFacts]) -> None:
        found, policy = self._found, self._policy
        self._note_scorer(group, samples)
        taught = taught_scores(samples, policy)
        reasons = [sample_reason(sample, score, policy) for sample, score in zip(samples, taught, strict=True)]
        reasons = with_alone(samples, reasons, policy)
        if group_reason(group, _scores(taught, reasons), _programs(samples, reasons), policy) is None:
            reasons = [reason or self._unreadable(one) for one, reason in zip(samples, reasons, strict=True)]
            reasons = with_alone(samples, reasons, policy)
        usable = [sample for sample, reason in zip(samples, reasons, strict=True) if reason is None]
        scores, programs = _scores(taught, reasons), _programs(samples, reasons)
        if (why := group_reason(group, scores, programs, policy)) is not None:
            found.drop("groups", why)
            found.drop("samples", why, len(samples))
            return
        for reason in filter(None, reasons):
            found.drop("samples", reason)
        positions = array("q", (sample.position for sample in usable))
        found.groups.append(
            KeptGroup(
                version=group.version,
                scorer=group.scorer,
                temperature=group.temperature,
                at=group.at,
                positions=positions,
                scores=array("d", scores),
                prompt=group.prompt,
                programs=self._once.setdefault(programs, programs) if len(set(programs)) > 1 else (),
                role=group.role,
                feedback=sum(sample.feedback is not None for sample in usable),
                unscorable=sum(sample.given is None for sample in usable),
            )
        )

    def _unreadable(self, sample: LoggedSampleFacts) -> Reason | None:
        """Read a sample's tokens that lie in a file, so that loading them later will not fail; return what is wrong."""
        if sample.trajectory is None:
            return None
        try:
            segments_at(self._logs_dir, sample.trajectory)
        except TrajectoryUnreadable as error:
            return Reason.NO_TRAJECTORY if error.missing else Reason.BAD_TRAJECTORY
        return None

    def _note_scorer(self, group: LoggedGroup, samples: list[LoggedSampleFacts]) -> None:
        """Note what the scorer said itself: that an application disagrees is no noise of the scorer's."""
        scored = [(sample.text, sample.score) for sample in samples if sample.score is not None]
        if scored:
            self._found.newest_scorer = group.scorer
            self._found.noise.add(group.scorer, scored)


def _scores(taught: Sequence[float | None], reasons: Sequence[Reason | None]) -> list[float]:
    """Return the scores of the samples that nothing speaks against."""
    return [score for score, reason in zip(taught, reasons, strict=True) if score is not None and reason is None]


def _programs(samples: Sequence[LoggedSampleFacts], reasons: Sequence[Reason | None]) -> tuple[str | None, ...]:
    return tuple(sample.program for sample, reason in zip(samples, reasons, strict=True) if reason is None)


def _answer_of_big(logged: SelectionRow) -> str | None:
    """Return the big model's answer, where it scored no less than the small model's best."""
    big = logged.cascade.big if logged.cascade else None
    return big.response if big is not None and big.teaches else None


def _role_of(logged: SelectionRow, agent_id: str) -> str | None:
    """Return the role that the agent played in the line's task; None where its program has none for it."""
    return next((role for role, played in (logged.arm.roles or {}).items() if played.agent_id == agent_id), None)


def _facts(position: int, logged: SelectionRow, role: str | None, feedback: float | None) -> LoggedSampleFacts:
    tokens = (logged.prompt_ids, logged.completion_ids, logged.logprobs)
    has_segments = bytes(logged.segments) not in NOTHING
    apart = None if has_segments else logged.trajectory
    return LoggedSampleFacts(
        position=position,
        score=logged.score,
        feedback=feedback,
        unscorable=logged.score_status == UNSCORABLE and logged.score_reason != NOT_MENTIONED,
        truncated=logged.finish_reason == "length",
        has_tokens=has_segments or apart is not None or not any(bytes(raw) in NOTHING for raw in tokens),
        trajectory=apart,
        lost=logged.sample_status in NOT_THERE,
        program=logged.program,
        called=role is None or _was_called(logged, role),
        text=hash(bytes(logged.response)),
    )


def _was_called(logged: SelectionRow, role: str) -> bool:
    taken = logged.usage.roles.get(role) if logged.usage else None
    return taken is not None and taken.sampled_tokens > 0
