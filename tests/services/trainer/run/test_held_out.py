"""What is held out of a run, and when a run that brings nothing ends by it."""

from __future__ import annotations

import json
import math
import statistics
from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from transformers import TrainerControl, TrainerState

from ratchet.adapters.manifest import read_card
from ratchet.adapters.taught_logs import words_key
from ratchet.runs.progress import training_report
from services.trainer.algorithms.policy import token_logps
from services.trainer.data.filters import DataPolicy
from services.trainer.data.journal_scan import KeptGroup, Scan
from services.trainer.data.samples import TrainingSample
from services.trainer.data.selection import select
from services.trainer.run.held_out import LOOKS, PATIENCE, Figure, HeldOutLooks, held_out_preference
from services.trainer.settings import TrainerSettings
from tests.services.trainer.making_logs import AT, write_log
from tests.services.trainer.run.test_training_run import changed_log, folder, train
from tests.services.trainer.tiny_policy import loaded, logged_groups, tiny_lora, training_samples

STEPS = 64
EVERY = STEPS // LOOKS
SHARE = 0.25
IN_VAIN = PATIENCE["held_out_loss"]


def run_through(tmp_path: Path, looks: HeldOutLooks) -> tuple[HeldOutLooks, TrainerState]:
    """A run until it is told to end, or to its last step."""
    arguments, state, control = SimpleNamespace(output_dir=tmp_path), TrainerState(max_steps=STEPS), TrainerControl()
    looks.on_train_begin(arguments, state, control)
    while not control.should_training_stop and state.global_step < STEPS:
        state.global_step += 1
        looks.on_step_end(arguments, state, control)
        if control.should_save:
            looks.on_save(arguments, state, control)
            control.should_save = False
    return looks, state


@pytest.mark.parametrize(
    ("never_before", "ends"),
    [(0, IN_VAIN * EVERY), (40, 40 + IN_VAIN * EVERY)],
    ids=["demonstrations alone", "demonstrations for 40 steps, then samples"],
)
def test_looks_in_vain_end_a_run_but_no_mixture_before_its_second_part(
    tmp_path: Path, never_before: int, ends: int
) -> None:
    figures: dict[str, list[float]] = defaultdict(list)
    looks = HeldOutLooks("held_out_loss", lambda: 1.0, 3, STEPS, figures, lambda event: None, never_before=never_before)

    looks, state = run_through(tmp_path, looks)

    assert state.global_step == looks.result.ended == ends
    assert not looks.result.is_better and "nothing was published" in looks.result.no_gain


@pytest.mark.parametrize(("figure", "sign"), [("held_out_loss", -1.0), ("held_out_preference", 1.0)])
def test_a_run_that_gains_no_more_ends_and_its_best_step_is_known(tmp_path: Path, figure: Figure, sign: float) -> None:
    gains = iter([0.0, 1.0, 3.0, *[2.9] * PATIENCE[figure], 9.0])
    events: list[Mapping[str, Any]] = []
    looks = HeldOutLooks(figure, lambda: sign * next(gains), 3, STEPS, defaultdict(list), events.append)

    looks, state = run_through(tmp_path, looks)

    found = looks.result
    assert (found.best, found.best_step, found.ended) == (sign * 3.0, 2 * EVERY, (2 + PATIENCE[figure]) * EVERY)
    assert found.is_better and state.best_model_checkpoint == str(tmp_path / f"checkpoint-{2 * EVERY}")
    assert events == [{"stage": "training", "step": 0, "steps": STEPS, figure: 0.0}]


def test_a_loss_that_falls_by_tiny_steps_ends_a_run_that_keeps_the_last_of_them(tmp_path: Path) -> None:
    losses = iter([1.0, 0.2, *(0.199 - look / 1000 for look in range(STEPS))])
    looks = HeldOutLooks("held_out_loss", lambda: next(losses), 3, STEPS, defaultdict(list), lambda event: None)

    looks, state = run_through(tmp_path, looks)

    ends = (1 + PATIENCE["held_out_loss"]) * EVERY
    assert (looks.result.ended, looks.result.best_step) == (ends, ends)
    assert state.best_model_checkpoint == str(tmp_path / f"checkpoint-{ends}")


@pytest.fixture
def many(settings: TrainerSettings, base_model: Path, tmp_path: Path) -> TrainerSettings:
    """Forty groups of four, each of another prompt, by the base model."""
    rows = [json.loads(one) for one in logged_groups(base_model, None, count=40, each=4, seed=2)]
    for row in rows:
        row["input"] = f"sort {row['task_id']}"
    return settings.model_copy(
        update={"logs_dir": write_log(tmp_path / "many", [msgspec.json.encode(row) + b"\n" for row in rows])}
    )


def test_the_preference_is_the_covariance_of_score_and_likelihood_in_each_group(base_model: Path) -> None:
    policy = tiny_lora(base_model)
    samples = training_samples(policy, [6, 5], seed=1)
    likelihoods = [math.exp(float(one.mean())) for one in token_logps(policy, samples, 1.0)]
    liked = [replace(one, score=likelihood) for one, likelihood in zip(samples, likelihoods, strict=True)]
    disliked = [replace(one, score=1 - one.score) for one in liked]

    by_hand = statistics.fmean(statistics.pvariance(own) for own in (likelihoods[:6], likelihoods[6:]))

    assert held_out_preference(policy, liked, 1.0) == pytest.approx(by_hand, rel=1e-4)
    assert held_out_preference(policy, disliked, 1.0) == pytest.approx(-by_hand, rel=1e-4)
    assert held_out_preference(policy, [replace(one, score=0.5) for one in samples], 1.0) == 0.0


def test_groups_that_are_held_out_are_not_taught_and_say_whether_the_run_is_of_use(
    many: TrainerSettings, base_model: Path
) -> None:
    outcome = train(many, hyperparameters={"epochs": 8, "held_out_groups": SHARE})

    assert outcome.status == "trained", outcome.reason
    report = json.loads((folder(many, outcome) / "training_report.json").read_text())
    looks = {step["step"]: step["held_out_preference"] for step in report["steps"] if "held_out_preference" in step}
    found, counts = report["held_out"], outcome.counts
    assert counts["groups"] + counts["groups.held_out"] + counts.get("groups.zero_spread", 0) == 40
    assert counts["samples"] + counts["samples.held_out"] + counts.get("samples.zero_spread", 0) == counts["lines"]
    assert (found["figure"], found["texts"]) == ("held_out_preference", counts["samples.held_out"])
    assert found["best"] == looks[found["best_step"]] == max(looks.values()) > found["before"]
    assert found["best_step"] <= found["ended"] == max(looks) <= report["plan"]["steps"]
    assert read_card(folder(many, outcome)).metrics["held_out_preference_best"] == found["best"]
    assert training_report(folder(many, outcome), "v1.0.1").curves["held_out_preference"][0][1] == min(looks.items())[1]
    published = loaded(base_model, folder(many, outcome))
    assert held_out_preference(published, held_out_samples(many), 1.0) == pytest.approx(found["best"], rel=1e-3)


def test_a_run_that_holds_out_no_groups_takes_all_its_steps(many: TrainerSettings) -> None:
    outcome = train(many, hyperparameters={"held_out_groups": 0})

    report = json.loads((folder(many, outcome) / "training_report.json").read_text())
    assert "groups.held_out" not in outcome.counts and "held_out" not in report
    assert report["steps"][-1]["step"] == report["plan"]["steps"]


def test_scores_that_say_nothing_publish_nothing(many: TrainerSettings, tmp_path: Path) -> None:
    """Better answers of the groups that teach are worse ones of those that are held out."""
    held_out = held_out_tasks(many)
    logs = changed_log(
        many.logs_dir,
        tmp_path / "contrary",
        lambda row, _: row.update(score=1 - row["score"]) if row["task_id"] in held_out else None,
    )

    # a step of the default size changes the figure by less than rounding does, so its sign is luck
    knobs = {"held_out_groups": SHARE, "learning_rate": 0.01}
    outcome = train(many.model_copy(update={"logs_dir": logs}), "contrary", hyperparameters=knobs)

    assert outcome.status == "refused"
    assert outcome.reason is not None and "nothing was published" in outcome.reason


def held_out_tasks(settings: TrainerSettings) -> set[str]:
    """Return the tasks with the largest keys: a share of those whose answers differ."""
    scores: dict[str, set[float]] = defaultdict(set)
    for row in rows_of(settings):
        scores[row["task_id"]].add(row["score"])
    spread = sorted((words_key(f"sort {task}"), task) for task, own in scores.items() if len(own) > 1)
    return {task for _, task in spread[-int(SHARE * len(spread)) :]}


def held_out_samples(settings: TrainerSettings) -> list[TrainingSample]:
    tasks = sorted(held_out_tasks(settings))
    return [
        TrainingSample(
            group=tasks.index(row["task_id"]),
            version="v1.0.0",
            score=row["score"],
            prompt=array("l", row["prompt_ids"]),
            completion=array("l", row["completion_ids"]),
            logprobs=array("f", row["logprobs"]),
        )
        for row in rows_of(settings)
        if row["task_id"] in tasks
    ]


def rows_of(settings: TrainerSettings) -> list[dict[str, Any]]:
    return [json.loads(one) for one in (settings.logs_dir / "agent_interactions.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize(
    ("prompts", "held_out"),
    [
        (list(range(40)), 10),
        (list(range(31)), 0),
        ([number // 4 for number in range(40)], 12),
        ([0] * 40, 0),
        ([0] * 30 + list(range(1, 11)), 10),
    ],
    ids=["a quarter", "too few", "whole prompts", "one prompt", "the rare prompts"],
)
def test_a_share_of_the_groups_is_held_out_by_whole_prompts(prompts: list[int], held_out: int) -> None:
    groups = [
        KeptGroup("v1.0.0", 0, 1.0, AT, array("q", [n]), array("d", [0, 1]), prompt) for n, prompt in enumerate(prompts)
    ]

    found = select(Scan(groups=groups), DataPolicy("small", {})).with_held_out(SHARE, 8)

    assert len(found.held_out) == found.counts.get("groups.held_out", 0) == held_out
    assert len(found.groups) == len(prompts) - held_out
    assert not {one.prompt for one in found.groups} & {one.prompt for one in found.held_out}
