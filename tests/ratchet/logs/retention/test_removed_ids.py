"""The ids of removed tasks: kept in order, cut back after a crash, the oldest files dropped in the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.logs.retention.removed_ids import FILES, append, drop_old, oldest, path_of, read, sum_of
from ratchet.service.errors import JournalError
from tests.quick import rounds

PER_FILE = 5


def everything(folder: Path, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += read(folder, len(found), 1000, per_file=PER_FILE)
    return found


@settings(max_examples=rounds(30))
@given(batches=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12), max_size=6))
def test_what_is_appended_is_read_in_order_over_all_files(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    count = 0
    for batch in batches:
        count = append(folder, count, batch, per_file=PER_FILE)

    assert everything(folder, count) == [one for batch in batches for one in batch]


def test_what_a_crash_left_behind_the_count_is_cut_off(tmp_path: Path) -> None:
    append(tmp_path, 0, [1, 2], per_file=PER_FILE)
    append(tmp_path, 2, [3], per_file=PER_FILE)
    with path_of(tmp_path, 0).open("ab") as file:
        file.write(b"torn")

    assert append(tmp_path, 2, [4, 5], per_file=PER_FILE) == 4

    assert everything(tmp_path, 4) == [1, 2, 4, 5]


def test_the_oldest_files_go_when_there_are_too_many(tmp_path: Path) -> None:
    count = append(tmp_path, 0, range(PER_FILE * (FILES + 2) + 1), per_file=PER_FILE)

    drop_old(tmp_path, count)  # with files as long as they are in production, nothing is too old
    assert len(list(tmp_path.iterdir())) == FILES + 3
    drop_old(tmp_path, count, per_file=PER_FILE)

    assert len(list(tmp_path.iterdir())) == FILES
    assert oldest(count, per_file=PER_FILE) == 3 * PER_FILE
    assert read(tmp_path, 3 * PER_FILE, 2, per_file=PER_FILE) == [15, 16]


@pytest.mark.parametrize("left", [None, b"", b"short"])
def test_a_lost_file_is_an_error_that_says_what_to_do(tmp_path: Path, left: bytes | None) -> None:
    if left is not None:
        path_of(tmp_path, 0).write_bytes(left)

    with pytest.raises(JournalError, match=r"restore it .* set `ids`"):
        read(tmp_path, 0, 10)
    with pytest.raises(JournalError, match="restore it"):
        append(tmp_path, 3, [1])


def test_sums_differ_for_different_ids() -> None:
    assert len({sum_of(f"task-{number}") for number in range(10_000)}) == 10_000
