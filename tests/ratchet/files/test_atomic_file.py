"""A file that is replaced: whole whoever writes, for whom it is meant, and nothing left beside it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ratchet.files.atomic_file import replace_file
from ratchet.service.errors import JournalError


def test_of_several_writers_one_content_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    contents = [bytes([letter]) * 10_000 for letter in b"abcdefgh"]

    with ThreadPoolExecutor() as writers:
        list(writers.map(lambda content: replace_file(path, content), contents))

    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_a_secret_is_its_owners_alone(tmp_path: Path) -> None:
    replace_file(tmp_path / "key", b"secret", mode=0o600)

    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_what_can_not_be_replaced_leaves_nothing_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "taken"
    folder.mkdir()

    with pytest.raises(JournalError, match="taken"):
        replace_file(folder, b"content")

    assert list(tmp_path.iterdir()) == [folder]
