"""Segments too long for a line: out of it and back, what is damaged, and what would swell."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from ratchet.logs.rows import ReferenceRow
from ratchet.logs.trajectories import (
    LONGEST_IN_LINE,
    MOST_BYTES,
    TrajectoryFolder,
    TrajectoryUnreadable,
    disk_bytes,
    fill_segments,
    path_of,
    segments_at,
    sum_in,
    taken_out,
)
from schemas.messages.response import Segment
from schemas.records.interaction import Interaction
from tests.services.trainer.making_logs import line

UNSET = dict.fromkeys(("prompt_ids", "completion_ids", "logprobs"))


def talk(tokens: int, sample: int = 0) -> Interaction:
    segment = Segment(
        prompt_ids=(1, 2),
        completion_ids=tuple(range(tokens)),
        spans=((0, tokens),),
        logprobs=tuple(-number / 8192 for number in range(tokens)),
    )
    return Interaction.decode(line("talk", sample, segments=(segment,), **UNSET).strip())


@pytest.fixture
def logged(tmp_path: Path) -> Interaction:
    """A line whose trajectory is there."""
    row, content = taken_out(talk(9000))
    assert content is not None and row.trajectory is not None
    TrajectoryFolder(tmp_path).write({row.trajectory.sha256: content}, 0)
    return row


def test_a_long_conversation_goes_out_of_its_line_and_comes_back_whole(tmp_path: Path, logged: Interaction) -> None:
    whole = talk(9000)

    assert logged.trajectory is not None and logged.segments is None
    assert len(logged.encode()) < 1500 < LONGEST_IN_LINE < logged.trajectory.size
    assert (logged.sampled_tokens, logged.trajectory.segments) == (9000, 1)
    decoded = Interaction.decode(logged.encode())
    assert sum_in(logged.encode()) == logged.trajectory.sha256
    assert fill_segments(tmp_path, decoded).segments == whole.segments
    (row,) = segments_at(tmp_path, ReferenceRow(logged.trajectory.sha256, logged.trajectory.size))
    assert (row.completion_ids, row.spans) == (list(range(9000)), [(0, 9000)])
    assert 0 < disk_bytes(tmp_path) < logged.trajectory.size


def test_a_short_one_stays_in_its_line_as_it_was() -> None:
    short = talk(100)

    assert taken_out(short) == (short, None)
    assert b'"trajectory"' not in short.encode() and sum_in(short.encode()) is None


def test_equal_conversations_of_two_samples_are_two_files() -> None:
    first, second = (taken_out(talk(9000, sample))[0].trajectory for sample in (0, 1))

    assert first is not None and second is not None and first.sha256 != second.sha256


def test_an_answer_that_only_says_so_refers_to_nothing() -> None:
    said = Interaction.decode(line("talk", 0, response='{"trajectory":{"sha256":"' + "a" * 64 + '","size":1}}').strip())

    assert sum_in(said.encode()) is None


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def change(path: Path) -> None:
    other = zstandard.ZstdDecompressor().decompress(path.read_bytes()).replace(b"talk", b"walk")
    path.write_bytes(zstandard.ZstdCompressor().compress(other))


def link(path: Path) -> None:
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def swell(path: Path) -> None:
    """1 GiB of zeros."""
    with path.open("wb") as file, zstandard.ZstdCompressor(3).stream_writer(file) as bomb:
        block = bytes(1 << 26)
        for _ in range(16):
            bomb.write(block)


def look_far_back(path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    path.write_bytes(zstandard.ZstdCompressor(compression_params=parameters).compressobj().compress(b"x"))


@pytest.mark.parametrize(
    "harm", [cut, change, link, pipe, swell, look_far_back, Path.unlink], ids=lambda one: one.__name__
)
def test_what_is_missing_damaged_or_hostile_is_said_and_costs_no_memory(
    tmp_path: Path, logged: Interaction, harm: Callable[[Path], None]
) -> None:
    assert logged.trajectory is not None
    harm(path_of(tmp_path, logged.trajectory.sha256))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(TrajectoryUnreadable, match="can't be read") as error:
        fill_segments(tmp_path, logged)

    assert error.value.missing == (harm is Path.unlink)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.parametrize(
    "reference",
    [
        ReferenceRow("../../etc/passwd", 10),
        ReferenceRow("a" * 64, -1),
        ReferenceRow("a" * 64, MOST_BYTES + 1),
        ReferenceRow("a" * 64, 10),
    ],
    ids=str,
)
def test_a_line_that_refers_to_what_no_trajectory_is_has_none(tmp_path: Path, reference: ReferenceRow) -> None:
    with pytest.raises(TrajectoryUnreadable):
        segments_at(tmp_path, reference)
