"""What is typed behind `ratchet record` as a task, a command and the place of an agent."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer.testing

from services.cli.app import app
from services.cli.fleet.options import FleetOptions
from services.cli.record import replicas, task_of
from services.cli.terminal import CommandError, UsageError
from tests.services.cli.started import started


def test_a_task_is_one_run_of_what_was_typed() -> None:
    task = task_of(None, "sort: ba", {"reference": "ab", "agent_id": None})

    assert (task.input, task.reference, task.samples, task.agent_id) == ("sort: ba", "ab", 1, None)
    assert task.task_id.startswith("task-")


def test_a_file_says_the_rest_and_what_is_typed_goes_first(tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    file.write_text('{"input": "sort: ba", "reference": "ab", "samples": 4, "temperature": 0.5}')

    task = task_of(file, "unused", {"samples": None, "reference": "ba", "task_id": "t-1"})

    assert (task.task_id, task.input, task.samples) == ("t-1", "sort: ba", 4)
    assert (task.reference, task.temperature) == ("ba", 0.5)
    file.write_text('{"input": "sort: ba"}')
    assert task_of(file, "unused", {}).samples == 1


@pytest.mark.parametrize("text", ["", "[]", '"sort: ba"', "{}", '{"input": 3}', '{"input": "x", "samples": 99}'])
def test_a_file_that_is_no_task_is_told_with_an_example(tmp_path: Path, text: str) -> None:
    file = tmp_path / "task.json"
    file.write_text(text)

    with pytest.raises(UsageError, match=r"task\.json: .* A task is such as"):
        task_of(file, "unused", {})


def test_all_replicas_of_the_agent_and_no_others_are_asked() -> None:
    small = {"agent-small-1": 8710, "agent-small-2": 8711}
    others = {"agent-other": 8712, "agent-small-3": 8713}
    fleet = started(FleetOptions(agents=("small", "small-3", "other")), {"orchestrator": 8700, **small, **others})

    assert replicas(fleet, "small") == ("http://127.0.0.1:8710", "http://127.0.0.1:8711")
    assert replicas(fleet, "small-3") == ("http://127.0.0.1:8713",)
    assert replicas(fleet, "other") == ("http://127.0.0.1:8712",)
    for record, agent in ((fleet, "coder"), (None, "small")):
        with pytest.raises(CommandError, match="--url"):
            replicas(record, agent)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ([], "give the program to run"),
        (["--", "no-such-program-anywhere"], "there is no program"),
        (["--input", "x", "--task", "t.json", "--", "true"], "either --task or --input"),
        (["--name", "a\nb", "--", "true"], "can't be a program's name"),
        (["--input", "a\0b", "--url", "http://here", "--", "echo", "{input}"], "NUL"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_is_asked(typed: list[str], said: str) -> None:
    ran = typer.testing.CliRunner().invoke(app, ["record", *typed])

    assert (ran.exit_code, said in ran.output) == (2, True), ran.output


def test_a_task_that_constrains_tools_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    file.write_text('{"input": "x", "constraints": {"tools": ["code_run"], "calls": 8}}')

    ran = typer.testing.CliRunner().invoke(app, ["record", "--task", str(file), "--", "true"])

    assert (ran.exit_code, "constraints.tools" in ran.output) == (2, True), ran.output
