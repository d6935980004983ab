"""A backup that is not whole, or not for this key, restores nothing; nothing is restored over what is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from services.cli.backup.archive import ADAPTERS, KEYS, LOGS, restore_backup, write_backup
from services.cli.backup.encryption import CHUNK
from services.cli.terminal import CommandError

KEY, OTHER = bytes(32), bytes([1] * 32)


def folders_in(root: Path) -> Mapping[str, Path]:
    return {name: root / name for name in (KEYS, ADAPTERS, LOGS)}


@pytest.fixture
def lived(tmp_path: Path) -> Mapping[str, Path]:
    folders = folders_in(tmp_path / "lived")
    files = {
        KEYS: {"decisions.key": b"secret"},
        ADAPTERS: {"decisions.jsonl": b"{}\n", "small/v1.0.1/weights": bytes(range(256)) * (CHUNK // 100)},
        LOGS: {"labels.jsonl": b"{}\n{}\n{ half a li", "index.sqlite": b"rebuilt", "labels-0-1.jsonl.zst": b"sealed"},
    }
    for root, inside in files.items():
        for name, content in inside.items():
            (folders[root] / name).parent.mkdir(parents=True, exist_ok=True)
            (folders[root] / name).write_bytes(content)
    return folders


def files_of(folders: Mapping[str, Path]) -> dict[str, bytes]:
    found = [path for folder in folders.values() for path in folder.rglob("*") if path.is_file()]
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in found}


@pytest.mark.parametrize("key", [KEY, None])
def test_what_is_restored_is_what_was_there(lived: Mapping[str, Path], tmp_path: Path, key: bytes | None) -> None:
    empty = folders_in(tmp_path / "empty")

    write_backup(tmp_path / "backup", lived, key)
    restore_backup(tmp_path / "backup", empty, key)

    restored, original = files_of(empty), files_of(lived)
    assert restored["logs/labels.jsonl"] == b"{}\n{}\n", "the line that was being written is no part of it"
    assert "logs/index.sqlite" not in restored
    assert restored["v1.0.1/weights"] == original["v1.0.1/weights"]
    assert ("decision-keys/decisions.key" in restored) is (key is not None)


@pytest.mark.parametrize("key", [KEY, None])
@pytest.mark.parametrize(
    "spoil",
    [lambda all_: all_[:-2000], lambda all_: all_[:CHUNK] + b"\xff\xff" + all_[CHUNK + 2 :]],
    ids=["cut", "changed"],
)
def test_a_file_that_is_not_whole_restores_nothing(
    lived: Mapping[str, Path], tmp_path: Path, key: bytes | None, spoil: Callable[[bytes], bytes]
) -> None:
    backup, empty = tmp_path / "backup", folders_in(tmp_path / "empty")
    write_backup(backup, lived, key)
    spoiled = spoil(backup.read_bytes().rstrip(b"\0") if key is None else backup.read_bytes())
    backup.write_bytes(spoiled)

    with pytest.raises(CommandError):
        restore_backup(backup, empty, key)

    assert files_of(empty) == {}


@pytest.mark.parametrize(("key", "says"), [(OTHER, "the key is another one"), (None, "name its key with --key-file")])
def test_the_wrong_key_is_named(lived: Mapping[str, Path], tmp_path: Path, key: bytes | None, says: str) -> None:
    write_backup(tmp_path / "backup", lived, KEY)

    with pytest.raises(CommandError, match=says):
        restore_backup(tmp_path / "backup", folders_in(tmp_path / "empty"), key)


def test_nothing_is_restored_over_a_fleet(lived: Mapping[str, Path], tmp_path: Path) -> None:
    write_backup(tmp_path / "backup", lived, None)
    before = files_of(lived)

    with pytest.raises(CommandError, match="is not empty"):
        restore_backup(tmp_path / "backup", lived, None)

    assert files_of(lived) == before
