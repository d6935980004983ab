"""What users asked against what is in the log."""

from __future__ import annotations

import json
from pathlib import Path

from demos.books import Account, Books, account


def write_log(folder: Path, *lines: tuple[str, int | None]) -> Path:
    rows = [json.dumps({"task_id": task, "sample": sample}) + "\n" for task, sample in lines]
    (folder / "agent_interactions.jsonl").write_text("".join(rows))
    return folder


def test_books_that_balance(tmp_path: Path) -> None:
    books = Books(asked={"a": 2, "b": 1}, answered={"a": "ok", "b": "ok"})
    logs = write_log(tmp_path, ("a", 0), ("other", 0), ("a", 1), ("b", 0))

    assert account(books, logs) == Account(asked=2, lost=0, failed=0, logged_twice=0)


def test_a_task_without_an_answer_or_with_too_few_samples_in_the_log_is_lost(tmp_path: Path) -> None:
    books = Books(asked={"a": 2, "b": 1, "c": 1}, answered={"a": "ok", "c": "ok"})
    logs = write_log(tmp_path, ("a", 0), ("b", 0), ("c", 0))

    assert account(books, logs).lost == 2


def test_a_failed_task_is_failed_and_not_lost(tmp_path: Path) -> None:
    books = Books(asked={"a": 8}, answered={"a": "expired"})

    assert account(books, write_log(tmp_path, ("a", None))) == Account(asked=1, lost=0, failed=1, logged_twice=0)


def test_a_sample_with_two_lines_is_counted(tmp_path: Path) -> None:
    books = Books(asked={"a": 1}, answered={"a": "ok"})

    assert account(books, write_log(tmp_path, ("a", 0), ("a", 0))).logged_twice == 1


def test_accounts_add_up() -> None:
    assert Account(1, 2, 3, 4) + Account(10, 20, 30, 40) == Account(11, 22, 33, 44)
