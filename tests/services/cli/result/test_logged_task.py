"""Finding one task in the logs, whatever segment it is in."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from ratchet.logs.journal import Journal
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS
from ratchet.logs.reader import end_of_log
from ratchet.logs.rows import AnswerRow
from ratchet.logs.segments import sealed_segments
from ratchet.rollouts.tool_audit import ToolChain
from ratchet.service.errors import Ambiguous
from services.cli.log import last_rows, render_row, show
from services.cli.result import find_task, result, whole_id
from services.cli.terminal import CommandError
from services.cli.tools import verify_audit


def sample(task: str, number: int, score: float | None, agent: str = "small") -> dict[str, object]:
    return {"task_id": task, "input": f"question {task}", "response": f"answer {number}", "score": score,
            "agent_id": agent, "adapter_version": "v1.0.0", "timestamp": "2026-01-02T03:04:05Z", "sample": number,
            "status": "ok"}  # fmt: skip


def write(folder: Path, name: str, rows: list[dict[str, object]], segment_bytes: int = 1000) -> None:
    async def append() -> None:
        journal = Journal.open(folder, name, max_segment_bytes=segment_bytes)
        for row in rows:
            await journal.append([json.dumps(row).encode()])
        await journal.close()

    asyncio.run(append())


def test_a_task_is_found_in_old_and_new_segments_with_its_best_sample(tmp_path: Path) -> None:
    write(tmp_path, INTERACTIONS, [sample(f"t{n}", s, s / 10) for n in range(40) for s in range(3)])

    for name in ("t0", "t17", "t39"):
        task = find_task(tmp_path, name)
        assert task is not None
        assert [line.row.sample for line in task.lines] == [0, 1, 2]
        assert task.chosen.sample == 2


def test_a_sample_logged_twice_counts_once(tmp_path: Path) -> None:
    write(tmp_path, INTERACTIONS, [sample("t", 0, 0.5), sample("t", 0, 0.5), sample("t", 1, None)])

    task = find_task(tmp_path, "t")

    assert task is not None
    assert len(task.lines) == 2


def test_an_admitted_task_without_an_answer_is_open(tmp_path: Path) -> None:
    write(tmp_path, ASSIGNMENTS, [{"task_id": "t", "input": "x"}])

    task = find_task(tmp_path, "t")

    assert task is not None
    assert task.lines == ()


def test_an_id_that_is_only_mentioned_is_not_found(tmp_path: Path) -> None:
    write(tmp_path, INTERACTIONS, [sample("t", 0, 0.5) | {"input": '"other"'}])

    assert find_task(tmp_path, "other") is None


def test_the_beginning_of_an_id_is_enough_where_no_other_begins_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, ASSIGNMENTS, [{"task_id": "task-ab2", "input": "task-ab1-not"}])
    write(tmp_path, INTERACTIONS, [sample(name, 0, 0.5) for name in ("task-ab1-long", "task-abc")])
    monkeypatch.setenv("RATCHET_LOGS_DIR", str(tmp_path))

    result("task-ab1…")

    assert capsys.readouterr().out == "answer 0\n"
    assert (whole_id(tmp_path, "task-ab2"), whole_id(tmp_path, "no")) == ("task-ab2", None)
    with pytest.raises(Ambiguous, match="task-ab1-long, task-abc"):
        show("task-ab")


def test_without_a_log_nothing_is_known(tmp_path: Path) -> None:
    assert find_task(tmp_path, "t") is None
    assert last_rows(tmp_path, 5, None) == ([], 0)


def test_the_tail_is_the_last_lines_and_where_the_log_ends(tmp_path: Path) -> None:
    write(tmp_path, INTERACTIONS, [sample(f"t{n}", 0, 0.5) for n in range(30)])

    rows, end = last_rows(tmp_path, 4, None)

    assert [row.task_id for _, row in rows] == ["t26", "t27", "t28", "t29"]
    assert last_rows(tmp_path, 0, None) == ([], end)


def test_the_tail_of_one_agent_goes_back_as_far_as_it_must(tmp_path: Path) -> None:
    rare = [sample("rare1", 0, 0.5, "coder"), sample("rare2", 0, 0.5, "coder")]
    write(tmp_path, INTERACTIONS, [*rare, *(sample(f"t{n}", 0, 0.5) for n in range(30))])

    rows, end = last_rows(tmp_path, 5, "coder")

    assert [row.task_id for _, row in rows] == ["rare1", "rare2"]
    assert end == end_of_log(tmp_path, INTERACTIONS)


def test_the_tail_reads_no_segment_before_those_it_takes_from(tmp_path: Path) -> None:
    others = [sample(f"t{n}", 0, 0.5) for n in range(15)]
    write(
        tmp_path, INTERACTIONS, [sample("rare1", 0, 0.5, "coder"), *others, sample("rare2", 0, 0.5, "coder"), *others]
    )
    sealed_segments(tmp_path, INTERACTIONS)[0].path.write_bytes(b"damaged")

    rows, _ = last_rows(tmp_path, 1, "coder")

    assert [row.task_id for _, row in rows] == ["rare2"]


def test_the_fleets_own_samples_are_in_the_tail_where_they_are_asked_for(tmp_path: Path) -> None:
    own = [sample(f"golden/{n}", 0, 0.5) | {"arm": {"experiment_id": "validation:small-1"}} for n in range(30)]
    write(tmp_path, INTERACTIONS, [sample("t1", 0, 0.5), *own])

    rows, _ = last_rows(tmp_path, 5, None, own=False)
    every, _ = last_rows(tmp_path, 5, None)

    assert [row.task_id for _, row in rows] == ["t1"]
    assert [row.task_id for _, row in every] == [f"golden/{n}" for n in range(25, 30)]


def test_a_row_is_one_line_whatever_is_in_it() -> None:
    messages = [{"role": "user", "content": "two\nlines"}]
    row = sample("t", 0, None) | {"input": messages, "response": None, "reason": "expired\nlate"}
    shown = render_row(msgspec.convert(row, AnswerRow)).plain

    assert "\n" not in shown
    assert "two lines → expired late" in shown


def test_the_audit_of_a_tasks_tools_is_told_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = ToolChain(None)
    for event in ("called", "ended"):
        chain.record(json.dumps({"event": event, "tool": "file_read", "how": "answered"}).encode())
    chain.record(b'{"event": "changed", "tool": "file_write", "paths": ["a.py"], "commit": "0123456789abcdef"}')
    audit = chain.summary()
    assert audit is not None
    of_tools = {"tool_audit": audit.model_dump(mode="json")}
    edited = {"tool_audit": of_tools["tool_audit"] | {"lines": [audit.lines[0].replace("called", "caller")]}}
    write(tmp_path, INTERACTIONS, [sample("t", 0, 0.5) | of_tools, sample("bad", 0, 0.5) | edited, sample("no", 0, 1)])
    monkeypatch.setenv("RATCHET_LOGS_DIR", str(tmp_path))

    result("t")
    verify_audit("t")
    said = capsys.readouterr()

    assert "tools: file_read 1 · changed a.py · commits 0123456789ab" in said.err
    assert f"3 lines, whole; the last has sha256 {audit.sha256}" in " ".join(said.out.split())
    with pytest.raises(CommandError, match=r"sample 0: line 1 of the audit was changed"):
        verify_audit("bad")
    with pytest.raises(CommandError, match="no rollout of task no called one of our tools"):
        verify_audit("no")
