"""`ratchet try` on a file of tasks, with a tiny model: measured, trained, measured again, and what comes next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ratchet.adapters.evaluations import input_sha256
from ratchet.logs.names import INTERACTIONS, is_own
from ratchet.logs.reader import read
from schemas import Interaction
from tests.acceptance.ratchet_command import Ratchet
from tests.acceptance.test_up_down import free_base
from tests.disks import MayNotMount, mounted_disk

TASKS = [{"input": f"Say yes to {n}.", "reference": "yes yes yes"} for n in range(40)]


def written(folder: Path, *lines: object) -> Ratchet:
    """The command, in a folder with these lines as its file."""
    (folder / "tasks.jsonl").write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines))
    return Ratchet(folder, {})


@pytest.mark.broker
@pytest.mark.timeout(600)
def test_a_file_of_tasks_is_held_out_in_part_taught_and_measured_before_and_after(
    tmp_path: Path, amqp_url: str
) -> None:
    # given forty tasks, one of them twice, and one without a reference
    from tests.ratchet.models.tiny_model import save_tiny_model

    model = save_tiny_model(tmp_path / "model")
    written(tmp_path, *TASKS, TASKS[0], {"input": "Whatever."})
    ratchet = Ratchet(tmp_path, {"RATCHET_AMQP_URL": amqp_url})

    # when it is tried
    ran = ratchet(
        "try", "--file", "tasks.jsonl", "--model", str(model), "--port-base", str(free_base()), "--json", timeout_s=500
    )

    # then it says what can teach, and how good the model was and is on tasks that nobody taught
    assert ran.code == 0, ran.err
    told = ran.json
    assert "40 of 41 tasks have a reference" in ran.err
    assert "1 lines ask what another asks" in ran.err
    assert (told["scorer"], told["taught_by"], told["taught"], told["held_out"]) == (
        "verifier:normalised",
        "references",
        30,
        10,
    )
    assert told["references"]["full_marks"] == 40
    assert told["measured"]["mean score"]["before"]["tasks"] == told["measured"]["mean score"]["after"]["tasks"] == 10
    assert told["training"]["counts"]["demonstrations.reference"] >= 16
    logs = tmp_path / ".ratchet" / "try" / "logs"
    lines = [Interaction.decode(line.data) for line in read(logs, INTERACTIONS)]
    asked = {is_own: {input_sha256(one.input) for one in lines if is_own == _is_own(one)} for is_own in (True, False)}
    assert (len(asked[True]), len(asked[False]), asked[True] & asked[False]) == (10, 30, set())

    # and the command that goes on from there
    assert any(f"ratchet up --model {model} --scorer verifier:normalised" in one for one in told["next"])


def _is_own(line: Interaction) -> bool:
    return is_own(line.arm.experiment_id)


@pytest.mark.parametrize(
    ("lines", "options", "complaint"),
    [
        ([TASKS[0], "", "{oops"], (), "line 3: "),
        ([], (), "holds no task"),
        (TASKS[:20], (), "20 different tasks can be graded: 8 to measure leave 12 to learn from, and 16 are the least"),
        ([{"input": f"{n}"} for n in range(40)], (), "no task has a reference"),
        (TASKS, ("--model", "smollm3"), "there is no model 'smollm3': name smollm2, models/small, or a folder"),
        (TASKS, ("--scorer", "verifier:exakt"), "there is no verifier 'exakt'"),
    ],
)
def test_what_can_not_be_tried_is_a_sentence(
    tmp_path: Path, lines: list[object], options: tuple[str, ...], complaint: str
) -> None:
    ratchet = written(tmp_path, *lines)

    ran = ratchet("try", "--file", "tasks.jsonl", *(options or ("--model", "models/small")))

    assert ran.code in (1, 2), ran.err
    assert complaint in " ".join(ran.err.split())
    assert not (tmp_path / ".ratchet").exists()


def test_a_disk_without_room_is_a_sentence(tmp_path: Path) -> None:
    written(tmp_path, *TASKS)
    try:
        with mounted_disk(tmp_path / "disk", 1024**2) as disk:
            ran = Ratchet(tmp_path, {"RATCHET_STATE_DIR": str(disk)})(
                "try", "--file", "tasks.jsonl", "--model", "models/small"
            )
    except MayNotMount as complaint:
        pytest.skip(str(complaint))

    assert ran.code == 1
    assert "0.0 GB are free and 2 GB are needed" in " ".join(ran.err.split())
