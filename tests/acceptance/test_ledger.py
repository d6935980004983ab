"""The ledger of the fault tests sees what it is there to see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.acceptance.ledger import Ledger


def write_logs(folder: Path, admitted: list[str], lines: list[dict[str, Any]]) -> None:
    write(folder / "assignments.jsonl", [{"task_id": task_id} for task_id in admitted])
    write(folder / "agent_interactions.jsonl", lines)


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def group(task_id: str, size: int = 2) -> list[dict[str, Any]]:
    return [{"task_id": task_id, "sample": sample, "group_size": size} for sample in range(size)]


def ledger_of(folder: Path, *, answers: list[str]) -> Ledger:
    ledger = Ledger(attempted={"a", "b"}, acknowledged={"a", "b"})
    ledger.answers.update(answers)
    ledger.read_logs(folder)
    return ledger


def test_books_that_balance(tmp_path: Path) -> None:
    write_logs(tmp_path, ["a", "b"], group("a") + group("b"))
    assert ledger_of(tmp_path, answers=["a", "b", "b"]).complaints() == []


@pytest.mark.parametrize(
    ("admitted", "lines", "answers", "complaint"),
    [
        (["a", "b"], group("a"), ["a", "b"], "1 acknowledged but not wholly logged: b"),
        (["a", "b"], group("a") + group("b")[:1], ["a", "b"], "1 acknowledged but not wholly logged: b"),
        (["a", "b"], group("a") + group("b"), ["a"], "1 acknowledged but not answered: b"),
        (["a", "b"], group("a") + group("b") + group("b")[:1], ["a", "b"], "1 logged twice: ('b', 0)"),
        (["a", "b", "b"], group("a") + group("b"), ["a", "b"], "1 admitted twice: b"),
        (["a", "b"], group("a") + group("b"), ["a", "b", "c"], "1 never asked for: c"),
    ],
)
def test_each_fault_is_named(
    tmp_path: Path, admitted: list[str], lines: list[dict[str, Any]], answers: list[str], complaint: str
) -> None:
    write_logs(tmp_path, admitted, lines)
    assert ledger_of(tmp_path, answers=answers).complaints() == [complaint]


def test_a_task_that_was_not_acknowledged_may_be_missing(tmp_path: Path) -> None:
    write_logs(tmp_path, ["a"], group("a"))
    ledger = Ledger(attempted={"a", "b"}, acknowledged={"a"})
    ledger.answers.update(["a"])
    ledger.read_logs(tmp_path)
    assert ledger.complaints() == []


def test_a_number_given_twice_two_endings_and_a_line_of_a_superseded_orchestrator_are_named(tmp_path: Path) -> None:
    def assigned(task_id: str, number: int, epoch: int) -> dict[str, Any]:
        return {"task_id": task_id, "arm": {"sequence": number}, "epoch": epoch}

    write_logs(tmp_path, [], group("a") + group("b"))
    write(tmp_path / "assignments.jsonl", [assigned("a", 7, 2), assigned("b", 7, 1)])
    ledger = Ledger(attempted={"a", "b"}, acknowledged={"a", "b"})
    ledger.answers.update(["a", "b", "b"])
    ledger.told |= {"a": {"ok"}, "b": {"ok", "expired"}}
    ledger.read_logs(tmp_path)

    assert ledger.complaints() == [
        "1 assigned one number: 7",
        "1 written by an orchestrator that was superseded: b",
        "1 told more than one status: b (expired, ok)",
    ]


def test_a_task_that_ended_without_an_answer_is_whole_and_one_with_half_its_late_samples_is_not(tmp_path: Path) -> None:
    def ended(task_id: str) -> dict[str, Any]:
        return {"task_id": task_id, "sample": None, "group_size": 0}

    write_logs(tmp_path, ["a", "b"], [ended("a"), ended("b"), group("b")[0]])
    assert ledger_of(tmp_path, answers=["a", "b"]).complaints() == ["1 acknowledged but not wholly logged: b"]


def test_sealed_segments_are_read_once_each_and_a_gap_is_an_error(tmp_path: Path) -> None:
    write_logs(tmp_path, ["a", "b"], group("b"))
    first = b"".join(json.dumps(line).encode() + b"\n" for line in group("a"))
    (tmp_path / f"agent_interactions-{0:015d}-{len(first):015d}.jsonl").write_bytes(first)
    copy = tmp_path / f"agent_interactions-{0:015d}-{len(first):015d}.jsonl.zst"
    copy.write_bytes(zstandard.ZstdCompressor().compress(first))
    assert ledger_of(tmp_path, answers=["a", "b"]).complaints() == []

    copy.rename(tmp_path / f"agent_interactions-{len(first) + 1:015d}-{2 * len(first):015d}.jsonl.zst")
    with pytest.raises(ValueError, match="are gone"):
        ledger_of(tmp_path, answers=["a", "b"])
