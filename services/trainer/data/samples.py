"""The selected samples with their tokens: read from the log by position, in one pass, kept as compact arrays.

What is read must be what was selected; of the rest of the log nothing stays in memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import LogReader
from ratchet.logs.rows import TokensRow
from ratchet.service.errors import JournalError
from services.trainer.data.journal_scan import KeptGroup


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """One answer. `prompt` is the same object for all samples of a group; `logprobs` has one entry per token of
    `completion`: the natural log of the probability the behaviour policy sampled it with."""

    group: int
    version: str
    score: float
    prompt: array[int]
    completion: array[int]
    logprobs: array[float]

    @property
    def length(self) -> int:
        """Tokens of prompt and completion."""
        return sum(self.size)

    @property
    def size(self) -> tuple[int, int]:
        """Tokens of the prompt, and of the completion."""
        return len(self.prompt), len(self.completion)


def load_samples(logs_dir: Path, groups: Sequence[KeptGroup]) -> list[TrainingSample]:
    """The samples of all groups, in their order. Raises JournalError where the log is not what was selected from."""
    wanted = {position: number for number, group in enumerate(groups) for position in group.positions}
    found = dict(_tokens_at(logs_dir, wanted))
    if len(found) != len(wanted):
        raise JournalError(f"{len(wanted) - len(found)} selected samples are gone from {logs_dir}: train again")
    return [sample for number, group in enumerate(groups) for sample in _samples(number, group, found)]


def _tokens_at(logs_dir: Path, wanted: dict[int, int]) -> Iterator[tuple[int, TokensRow]]:
    if not wanted:
        return
    decoder, last = msgspec.json.Decoder(TokensRow), max(wanted)
    for line in LogReader(logs_dir, INTERACTIONS, min(wanted), on_bad=lambda bad: None).whole_lines():
        if line.position in wanted:
            yield line.position, decoder.decode(line.data)
        if line.position >= last:
            return


def _samples(number: int, group: KeptGroup, found: dict[int, TokensRow]) -> list[TrainingSample]:
    lines = [found[position] for position in group.positions]
    prompt = array("l", lines[0].prompt_ids)
    samples = []
    for line, score in zip(lines, group.scores, strict=True):
        if len(line.completion_ids) != len(line.logprobs) or line.prompt_ids != lines[0].prompt_ids:
            raise JournalError("a group's samples differ in their prompts, or tokens and log-probabilities in number")
        samples.append(
            TrainingSample(
                group=number,
                version=group.version,
                score=score,
                prompt=prompt,
                completion=array("l", line.completion_ids),
                logprobs=array("f", line.logprobs),
            )
        )
    return samples
