"""The selected samples with their tokens: read from the log by position, in one pass, kept as compact arrays.

What is read must be what was selected; of the rest of the log nothing stays in memory.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import LogReader
from ratchet.logs.rows import GrammarRow, SegmentRow, TokensRow
from ratchet.logs.trajectories import segments_at
from ratchet.service.errors import JournalError
from schemas.records.demonstration import DemonstrationSource
from services.trainer.data.journal_scan import KeptGroup


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """One answer, or one segment of a conversation: a row of the model.

    `prompt` is the same object for all samples of a group with equal prompts; `logprobs` has one entry per token of
    `completion`: the natural log of the probability the behaviour policy sampled it with. `sampled` says of each token
    whether it was sampled (1) or given (0, its `logprobs` entry is 0); None where all were. Neighbours with the same
    `rollout` are segments of one sample of their group; None is a sample of one segment. `broke`: why a segment does
    not go on from what came before. `program`: what made the rollout, where its group has several. `demonstration`: the
    source of one, which no policy sampled: its `logprobs` say nothing. `grammars`: from and to before which tokens of
    the completion were sampled under one, and its text.
    """

    group: int
    version: str
    score: float
    prompt: array[int]
    completion: array[int]
    logprobs: array[float]
    sampled: array[int] | None = None
    rollout: int | None = None
    broke: str | None = None
    program: str | None = None
    demonstration: DemonstrationSource | None = None
    grammars: tuple[tuple[int, int, str], ...] = ()

    @property
    def length(self) -> int:
        """Tokens of prompt and completion."""
        return sum(self.size)

    @property
    def size(self) -> tuple[int, int]:
        """Tokens of the prompt, and of the completion."""
        return len(self.prompt), len(self.completion)

    @property
    def tokens(self) -> int:
        """The number of tokens that were sampled."""
        return len(self.completion) if self.sampled is None else sum(self.sampled)


def rollouts_of(samples: Sequence[TrainingSample]) -> list[tuple[int, ...]]:
    """The numbers of the rows of each rollout; with one answer a sample, each is one."""
    rows = enumerate(samples)
    by_rollout = itertools.groupby(
        rows, key=lambda row: (row[1].group, row[0] if row[1].rollout is None else -1, row[1].rollout)
    )
    return [tuple(number for number, _ in part) for _, part in by_rollout]


def load_samples(
    logs_dir: Path, groups: Sequence[KeptGroup], *, on_share: Callable[[float], None] = lambda share: None
) -> list[TrainingSample]:
    """The samples of all groups, in their order; `on_share` is told after each how many of them are read.

    Raises JournalError where the log is not what was selected from.
    """
    wanted = {position: number for number, group in enumerate(groups) for position in group.positions}
    found: dict[int, TokensRow] = {}
    for position, row in _tokens_at(logs_dir, wanted):
        found[position] = row
        on_share(len(found) / len(wanted))
    if len(found) != len(wanted):
        raise JournalError(f"{len(wanted) - len(found)} selected samples are gone from {logs_dir}: train again")
    return [sample for number, group in enumerate(groups) for sample in _samples(number, group, found)]


def _tokens_at(logs_dir: Path, wanted: dict[int, int]) -> Iterator[tuple[int, TokensRow]]:
    if not wanted:
        return
    decoder, last = msgspec.json.Decoder(TokensRow), max(wanted)
    for line in LogReader(logs_dir, INTERACTIONS, min(wanted), on_bad=lambda bad: None).whole_lines():
        if line.position in wanted:
            row = decoder.decode(line.data)
            if row.segments is None and row.trajectory is not None:
                row.segments = segments_at(logs_dir, row.trajectory)
            yield line.position, row
        if line.position >= last:
            return


def _samples(number: int, group: KeptGroup, found: dict[int, TokensRow]) -> Iterator[TrainingSample]:
    lines = [found[position] for position in group.positions]
    asked = next((line.prompt_ids for line in lines if line.segments is None), None)
    prompts: dict[tuple[int, ...], array[int]] = {}

    def prompt_of(ids: Sequence[int]) -> array[int]:
        return prompts.setdefault(tuple(ids), array("l", ids))

    for rollout, (line, score, program) in enumerate(zip(lines, group.scores, group.made_by, strict=True)):
        for segment in line.segments or [_whole(line, asked)]:
            if group.role is not None and segment.role != group.role:
                continue  # what a partner sampled is not this policy's: it teaches as what is given, or not at all
            given = line.segments is not None
            logprobs, sampled = _align(segment)
            yield TrainingSample(
                group=number,
                version=group.version,
                score=score,
                prompt=prompt_of(segment.prompt_ids),
                completion=array("l", segment.completion_ids),
                logprobs=logprobs,
                sampled=sampled if given else None,
                rollout=rollout if given else None,
                broke=segment.broke,
                program=program,
                grammars=tuple(
                    (*segment.spans[span], grammar.text) for grammar in segment.grammars for span in grammar.spans
                ),
            )


def _whole(line: TokensRow, asked: list[int] | None) -> SegmentRow:
    """An answer, all of it sampled."""
    ids, logprobs = line.completion_ids or [], line.logprobs or []
    if len(ids) != len(logprobs) or asked is None or line.prompt_ids != asked:
        raise JournalError("a group's samples differ in their prompts, or tokens and log-probabilities in number")
    grammar = line.sampling.grammar
    held = [GrammarRow(grammar.text, [0])] if grammar is not None and ids else []
    return SegmentRow(asked, ids, [(0, len(ids))], logprobs, grammars=held)


def _align(segment: SegmentRow) -> tuple[array[float], array[int]]:
    """Log-probabilities, and which were sampled, for each token of the completion."""
    count = len(segment.completion_ids)
    logprobs, sampled, taken = array("f", bytes(4 * count)), array("b", bytes(count)), 0
    for start, end in segment.spans:
        found = segment.logprobs[taken : taken + end - start]
        if not 0 <= start <= end <= count or len(found) != end - start:
            raise JournalError("a segment's spans, tokens and log-probabilities do not align")
        logprobs[start:end] = array("f", found)
        sampled[start:end] = array("b", [1] * len(found))
        taken += len(found)
    if taken != len(segment.logprobs):
        raise JournalError("a segment has log-probabilities of tokens that were not sampled")
    return logprobs, sampled
