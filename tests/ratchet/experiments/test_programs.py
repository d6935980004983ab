"""An agent's programs side by side, out of a log that grows, is retained and torn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ratchet.experiments.programs import ProgramBook
from ratchet.logs.segments import seal
from schemas.api.programs import ProgramFigures
from schemas.messages.response import Usage
from schemas.messages.work import Arm
from tests.services.trainer.making_logs import AT, group, line, write_log


def rollout(task: str, sample: int, program: str, score: float | None, **given: Any) -> bytes:
    return line(task, sample, program=program, score=score, **({"group_size": 4} | given))


def task(name: str, aider: tuple[float, float], shell: tuple[float, float | None], **given: Any) -> list[bytes]:
    usage = Usage(calls=4, prompt_tokens=900, sampled_tokens=100, seconds=2.0, breaks={"rewritten": 2})
    cheap = Usage(calls=1, prompt_tokens=50, sampled_tokens=20, seconds=0.5)
    return [
        rollout(name, 0, "aider", aider[0], usage=usage, **given),
        rollout(name, 1, "shell", shell[0], usage=cheap, **given),
        rollout(name, 2, "aider", aider[1], usage=usage, sample_status="limit", **given),
        rollout(name, 3, "shell", shell[1], **({"sample_status": "lost"} if shell[1] is None else {}), **given),
    ]


def figures(book: ProgramBook) -> dict[str, ProgramFigures]:
    return {one.program: one for one in book.compare().items}


def test_score_cost_breaks_and_ends_by_program(tmp_path: Path) -> None:
    lines = [*task("a", (0.9, 0.7), (0.2, None)), *task("b", (1.0, 0.6), (0.4, 0.0))]
    own = Arm(sequence=1, experiment_id="validation:small-3")
    lines += task("golden", (0.0, 0.0), (1.0, 1.0), arm=own) + group("plain", (0.1, 0.2))

    found = ProgramBook(write_log(tmp_path, lines)).compare()
    aider, shell = found.items

    assert (found.since, found.lines) == (AT, 14)
    assert (aider.agent_id, aider.program, aider.rollouts, aider.scored) == ("small", "aider", 4, 4)
    assert aider.score is not None and shell.score is not None
    assert (aider.score.tasks, aider.score.mean, aider.score.high) == (2, pytest.approx(0.8), pytest.approx(0.8))
    assert (shell.score.tasks, shell.score.mean, shell.scored) == (2, pytest.approx(0.2), 3)
    assert (aider.ended, shell.ended) == ({"finished": 2, "limit": 2}, {"finished": 3, "lost": 1})
    assert (aider.breaks, shell.breaks) == ({"rewritten": 8}, {})
    assert (aider.calls, aider.sampled_tokens, aider.prompt_tokens, aider.seconds) == (4, 100, 900, 2.0)
    assert (shell.calls, shell.sampled_tokens, shell.seconds) == (1, 20, 0.5)


def test_tasks_that_asked_for_the_first_that_passes_are_left_out(tmp_path: Path) -> None:
    lines = [*task("a", (0.9, 0.7), (0.2, 0.4)), *task("b", (1.0, 1.0), (0.0, None), select="first-passing")]

    found = figures(ProgramBook(write_log(tmp_path, lines)))

    assert {name: (one.rollouts, one.scored) for name, one in found.items()} == {"aider": (2, 2), "shell": (2, 2)}


def test_a_task_is_one_observation_and_the_interval_is_over_tasks(tmp_path: Path) -> None:
    lines = [one for n, score in enumerate((0.2, 0.4, 0.9)) for one in task(f"t{n}", (score, score), (0.5, 0.5))]

    aider = figures(ProgramBook(write_log(tmp_path, lines)))["aider"]

    assert aider.score is not None and aider.score.high is not None
    assert aider.score.high - aider.score.mean == pytest.approx(1.959964 * 0.360555 / 3**0.5, rel=1e-5)


def test_what_comes_later_is_read_on_and_groups_count_once_they_are_whole(tmp_path: Path) -> None:
    first, second = task("a", (0.9, 0.7), (0.2, 0.2)), task("b", (0.5, 0.5), (0.2, 0.2))
    book = ProgramBook(write_log(tmp_path, [*first, *second[:2]]))

    assert figures(book)["aider"].rollouts == 2
    write_log(tmp_path, second[2:])
    assert figures(book)["aider"].rollouts == 4
    assert book.compare("coder").items == []


def test_what_was_removed_is_not_missed_and_only_so_much_is_read(tmp_path: Path) -> None:
    old, new = b"".join(task("a", (0.1, 0.1), (0.2, 0.2))), task("b", (0.5, 0.5), (0.2, 0.2))
    logs = write_log(tmp_path, [old])
    whole = ProgramBook(logs)
    assert figures(whole)["aider"].rollouts == 2
    seal(logs, "agent_interactions", 0, len(old))
    write_log(logs, new)

    assert figures(whole)["aider"].rollouts == 4
    newest = figures(ProgramBook(logs, most_bytes=len(b"".join(new))))["aider"]
    assert newest.score is not None
    assert (newest.rollouts, newest.score.mean) == (2, 0.5)


def test_an_empty_log_has_no_programs(tmp_path: Path) -> None:
    assert ProgramBook(tmp_path).compare().items == []


def test_another_log_in_its_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    book = ProgramBook(write_log(tmp_path, task("a", (0.9, 0.7), (0.2, 0.2)) * 1 + task("b", (0.9, 0.7), (0.2, 0.2))))
    assert figures(book)["aider"].rollouts == 4
    (tmp_path / "agent_interactions.jsonl").unlink()
    write_log(tmp_path, task("c", (0.9, 0.7), (0.2, 0.2)))

    assert figures(book)["aider"].rollouts == 2


def test_a_number_that_no_rollout_can_have_is_left_out_and_the_rest_is_told(tmp_path: Path) -> None:
    usage = Usage(calls=3, sampled_tokens=10, seconds=1.0)
    lines = [rollout(f"t{at}", 0, "aider", 0.5, usage=usage, group_size=1) for at in range(2)]
    lines[1] = lines[1].replace(b'"calls":3', b'"calls":' + b"9" * 400)

    aider = figures(ProgramBook(write_log(tmp_path, lines)))["aider"]

    assert (aider.rollouts, aider.scored, aider.calls, aider.seconds) == (2, 2, 3.0, 1.0)
