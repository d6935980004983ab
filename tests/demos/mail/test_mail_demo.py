"""The demo of the agent: nothing held out is seen elsewhere, its program works in JSON, and hidden checks pay it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import pytest

from demos.books import Measured
from demos.demo import Sizes
from demos.mail.demo import EXAMPLES, MOST_CALLS, OFFERED, MailDemo, MailTask, distinct_tasks
from demos.real.demo import TRAINING
from demos.real.tasks import Part
from demos.tools.in_sandboxes import programs
from demos.toy.byte_tokenizer import byte_tokenizer
from ratchet.logs.rows import AnswerRow, ArtifactRow
from ratchet.models.tokenization import chat_template
from ratchet.rollouts.rollout import RecordedRollout
from schemas.messages.response import Sample
from schemas.messages.workspace import Artifact
from services.cli.fleet.own_fleet import FleetPlace
from services.orchestrator.settings import OrchestratorSettings
from services.runner.settings import RunnerSettings
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import build_strategy
from services.scorer.strategies.strategy import Answer, ScoringRequest, Strategy
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters
from services.trainer.settings import TrainerSettings
from tests.demos.real.test_real_tasks import date_in
from tests.demos.tools.test_in_sandboxes import patch_of, run_program
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine

PARTS: tuple[Part, ...] = get_args(Part)
DRAWN = {part: distinct_tasks(part, "1", 300) for part in PARTS}
EVERY = list(itertools.chain(*DRAWN.values()))
DEMO = MailDemo(sizes=Sizes(tasks=6, samples=2, turns=1, groups=64, no_turn_after=1.0, timeout=1.0), seed=3, run="x")
TASK = DEMO.held_out()[0]
TOKENIZER = byte_tokenizer(8192)
EXAMPLE_WORDS = set(re.findall(r"[\w-]+", " ".join(turn["content"] for turn in EXAMPLES)))


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(PARTS, 2)))
def test_tasks_of_two_parts_share_neither_sentence_nor_form_nor_value(one: Part, other: Part) -> None:
    def used(part: Part) -> set[str]:
        return {value for task in DRAWN[part] for value in (task.sentence, task.form, *task.values)}

    assert not used(one) & used(other)


def test_the_examples_have_no_value_of_any_part() -> None:
    assert not EXAMPLE_WORDS & {value for task in EVERY for value in task.values}


def test_the_files_of_a_task_say_what_is_right() -> None:
    for task in EVERY:
        sentence, _, rule = task.files[task.mail].partition("Rule: ")
        assert (date_in(sentence).isoformat(), rule) == (task.day, f'"{task.rule}".')
        assert task.files[task.rule] == f'Write it to "{task.target}".'
        assert task.target not in task.files and len(task.files) == 4
        assert all(len(held) < 256 for held in task.files.values())


def test_a_seed_gives_the_same_tasks_and_another_seed_others() -> None:
    assert distinct_tasks("held_out", "5", 20) == distinct_tasks("held_out", "5", 20)
    mails = [{task.files[task.mail] for task in distinct_tasks("held_out", seed, 20)} for seed in "56"]
    assert not mails[0] & mails[1]


LEFT: dict[str, tuple[dict[str, str], float]] = {
    "all right": ({TASK.target: TASK.day}, 1.0),
    "the wrong file": ({"other": TASK.day}, 0.5),
    "the wrong day": ({TASK.target: "1999-01-01"}, 0.5),
    "all wrong": ({"other": "1999-01-01"}, 0.0),
    "nothing": ({}, 0.0),
    "a given file too": ({TASK.target: TASK.day, TASK.rule: "x"}, 0.5),
    "another file too": ({TASK.target: TASK.day, "zoo": "x"}, 0.0),
}
"""Files that changed, and their score."""


@pytest.fixture
async def scorer() -> AsyncIterator[Strategy]:
    found = build_strategy(ScorerSettings.read(scorer="tests"))
    await found.start()
    yield found
    await found.stop()


async def test_hidden_checks_pay_for_the_right_file_and_for_what_it_holds(scorer: Strategy) -> None:
    answers = tuple(Answer("", artifact=Artifact(patch=patch_of(TASK.files, changed))) for changed, _ in LEFT.values())
    graded = {name: DEMO.fields(TASK)[name] for name in ("workspace", "criteria")}
    scores = await scorer.score(ScoringRequest("t", TASK.input, answers, **graded))
    assert [score.score for score in scores] == [wanted for _, wanted in LEFT.values()]


def test_the_hidden_verifier_goes_by_the_files_that_the_sandbox_held() -> None:
    left = {how: AnswerRow("t", artifact=ArtifactRow(patch_of(TASK.files, held))) for how, (held, _) in LEFT.items()}
    assert [how for how, row in left.items() if DEMO.is_right(TASK, row)] == ["all right"]
    assert not DEMO.is_right(TASK, AnswerRow("t", response=TASK.day))


async def ran(task: MailTask, turns: list[str], folder: Path) -> Sample:
    left = iter(turns)
    engine = ScriptedEngine(lambda prompt: [*TOKENIZER.encode(next(left)), TOKENIZER.eos_token_id])
    template = chat_template(TOKENIZER, {TOKENIZER.eos_token_id})
    assert template is not None
    rollout = RecordedRollout(template, engine, model="small@v1.0.0")
    return await run_program(programs("small", OFFERED), task.files, task.input, rollout, folder)


async def test_the_program_reads_follows_and_writes_by_calls_in_json(tmp_path: Path) -> None:
    calls = [{"read": TASK.mail}, {"read": TASK.rule}, {TASK.target: TASK.day}]
    sample = await ran(TASK, [json.dumps(call) for call in calls], tmp_path / "workspace")

    assert (sample.text, sample.status) == (TASK.day, "finished")
    left = {path.name: path.read_text() for path in (tmp_path / "workspace").iterdir()}
    assert left == {**TASK.files, TASK.target: TASK.day}
    assert sample.segments is not None
    (segment,) = sample.segments
    assert len(segment.spans) == 3
    seen = TOKENIZER.decode([*segment.prompt_ids, *segment.completion_ids])
    assert TASK.files[TASK.mail] in seen and TASK.files[TASK.rule] in seen
    assert EXAMPLES[-1]["content"] in TOKENIZER.decode(segment.prompt_ids)


@pytest.mark.parametrize(
    ("turn", "calls"),
    [('{"read": "a', 1), ("1999-01-01", 1), ("[]", 1), ("{}", 1), ('{"read": "/nothing"}', MOST_CALLS)],
)
async def test_an_answer_that_is_no_call_and_calls_without_end_leave_nothing(
    turn: str, calls: int, tmp_path: Path
) -> None:
    sample = await ran(TASK, [turn] * 9, tmp_path / "workspace")
    assert (sample.text, sample.status) == ("", "finished")
    assert {path.name for path in (tmp_path / "workspace").iterdir()} == TASK.files.keys()
    assert sample.usage is not None and sample.usage.calls == calls


def test_held_out_tasks_go_out_without_their_checks() -> None:
    taught = next(DEMO.users())
    held_out = DEMO.measuring_tasks(DEMO.name_questions("before", DEMO.held_out()), "v1.0.0", 2)
    assert taught.criteria is not None and TASK.day not in {task.reference for task in [taught, *held_out]}
    assert {(task.criteria, task.adapter_version) for task in held_out} == {(None, "v1.0.0")}
    assert all(task.workspace is not None for task in [taught, *held_out, *DEMO.golden_tasks()])


def test_its_settings_are_ones_that_the_services_take() -> None:
    given = {name.removeprefix("RATCHET_").lower() for name in DEMO.settings(FleetPlace(Path("demo")))}
    known = (OrchestratorSettings, TrainerSettings, RunnerSettings)
    assert given <= {"agent_seed"}.union(*(one.model_fields for one in known))
    GrpoHyperparameters.model_validate(TRAINING)


def measured(stage: str, right: int, *, in_sandbox: bool = True) -> Measured[MailTask]:
    """Two rollouts of each held-out task: the first `right` tasks are done."""
    tasks = DEMO.name_questions(stage, DEMO.held_out())
    found = []
    for at, (name, task) in enumerate(tasks.items()):
        artifact = ArtifactRow(patch_of(task.files, {task.target: task.day} if at < right else {}))
        found += [AnswerRow(name, sample=n, artifact=artifact if in_sandbox else None) for n in range(2)]
    return Measured(tasks, {}, found)


def test_the_figures_have_the_gain_by_task_and_promise_that_every_rollout_was_in_a_sandbox() -> None:
    found = DEMO.figures({"before": measured("before", 1), "after": measured("after", 6)}, (), Path())
    assert found.gain.before.mean == pytest.approx(1 / 6)
    assert (found.gain.after.mean, found.gain.after.tasks, list(found.faults())) == (1.0, 6, [])
    assert [one["done_after"] for one in found.as_dict()["examples"]] == [True] * 4
    assert len(found.tables("v1.0.1")) == 6

    outside = DEMO.figures(
        {"before": measured("before", 1), "after": measured("after", 6, in_sandbox=False)}, (), Path()
    )
    assert "12 rollouts did not run in a sandbox" in list(outside.faults())
    worse = DEMO.figures({"before": measured("before", 1), "after": measured("after", 2)}, (), Path())
    assert len(list(worse.faults())) == 2
