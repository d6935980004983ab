"""kill -9 of the writer, at its named steps and at any time: every acknowledged line is there, none twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from ratchet.logs.journal import Journal
from ratchet.logs.quarantine import BadLine
from ratchet.logs.reader import read_json
from ratchet.logs.seals import NOTHING, extend_chain, read_seals
from ratchet.logs.segments import sealed_segments

CHILD = Path(__file__).with_name("journal_child.py")
ROOT = Path(__file__).parents[3]


class Numbered(msgspec.Struct):
    number: int


def start(folder: Path, first: int, failpoint: str = "") -> subprocess.Popen[str]:
    environment = os.environ | {"RATCHET_FAILPOINT": failpoint, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(CHILD), str(folder), str(first)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def acknowledged(child: subprocess.Popen[str]) -> set[int]:
    """All it printed before it died, a line cut by the kill left out."""
    printed, _ = child.communicate(timeout=60)
    return {int(line) for line in printed.splitlines(keepends=True) if line.endswith("\n")}


def numbers(folder: Path) -> list[int]:
    bad: list[BadLine] = []
    found = [record.value.number for record in read_json(folder, "log", Numbered, on_bad=bad.append)]
    assert bad == []
    return found


def check(folder: Path, groups: set[int]) -> None:
    found = numbers(folder)
    assert len(found) == len(set(found))
    assert {first + part for first in groups for part in range(3)} <= set(found)


def assert_sealed(folder: Path) -> None:
    """Each segment has a seal that its lines give, whenever its writer was killed."""
    book = read_seals(folder / "seals", "log")
    seals = {(one.start, one.end): one.chain for one in book.seals if one.kind == "seal"}
    for segment in sealed_segments(folder, "log"):
        with segment.open() as content:
            assert extend_chain(NOTHING, content.read()[:-1].split(b"\n")).hex() == seals[segment.start, segment.end]


def reopen(folder: Path) -> None:
    """What the next writer does at its start; afterwards the log ends with a whole line."""

    async def open_and_close() -> None:
        journal = Journal.open(folder, "log", max_segment_bytes=20_000, seals=folder / "seals")
        end = journal.end
        await journal.close()
        assert end == sum(segment.size for segment in sealed_segments(folder, "log")) + (
            (folder / "log.jsonl").stat().st_size
        )

    asyncio.run(open_and_close())
    assert_sealed(folder)
    assert all(segment.compressed for segment in sealed_segments(folder, "log"))
    assert not list(folder.glob("*.tmp"))


@pytest.mark.parametrize("step", ["written", "fsynced"])
def test_killed_at_a_step(tmp_path: Path, step: str) -> None:
    # given a writer that dies at its fifth passage of the step
    child = start(tmp_path, 0, f"{step}:5")
    groups = acknowledged(child)
    assert child.returncode == -signal.SIGKILL
    assert groups

    # then what it acknowledged can be read at once, and after the repair
    check(tmp_path, groups)
    reopen(tmp_path)
    check(tmp_path, groups)


def test_killed_at_any_time_again_and_again(tmp_path: Path) -> None:
    groups: set[int] = set()
    for life in range(6):
        # given a writer that goes on with the log its predecessor left
        child = start(tmp_path, life * 1_000_000)
        assert child.stdout is not None
        groups.add(int(child.stdout.readline()))

        # when it is killed at some moment
        time.sleep(0.02 + 0.037 * life)  # real time: a moment nobody chose
        child.kill()
        groups |= acknowledged(child)

        # then a reader that comes before the repair finds it all
        check(tmp_path, groups)
    reopen(tmp_path)
    check(tmp_path, groups)
    assert len(sealed_segments(tmp_path, "log")) > 1

    # and each acknowledged line was noted as written, though nobody ended in order
    book = read_seals(tmp_path / "seals", "log")
    strange = [one.value.number for one in read_json(tmp_path, "log", Numbered) if book.is_strange(one.position)]
    assert not {number - number % 1_000_000 % 3 for number in strange} & groups
