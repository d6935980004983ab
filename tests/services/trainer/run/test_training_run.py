"""Whole runs on a tiny model: from a log to a published adapter, or to a refusal with its numbers."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from safetensors.torch import load_file

from ratchet.adapters.check import check_adapter
from ratchet.adapters.evaluations import input_sha256, register_set
from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.manifest import read_card
from ratchet.adapters.registry import RegistryStore
from ratchet.models.loading import content_sha256
from ratchet.runs.progress import RunProgressRecord, read_progress, training_report
from ratchet.runs.run import NOTHING_AGAINST_IT
from ratchet.runs.store import RunStore
from schemas.messages.training import AdapterTrained, TrainRequest
from schemas.records.evaluation import EvaluationSet, RegisteredSet
from services.cli.eval.task_set import find_leaks, windows_of
from services.trainer.run.execution import RunExecution
from services.trainer.settings import TrainerSettings
from services.trainer.train import do_run, register
from tests.ratchet.adapters.making_adapters import NOON
from tests.services.trainer.making_logs import feedback, give_feedback, group, write_log
from tests.services.trainer.tiny_policy import logged_groups

Train = Callable[..., AdapterTrained]
ASKED = {"request_id": "run-1", "agent_id": "small"}


def train(settings: TrainerSettings, request_id: str = "run-1", *, dry: bool = False, **asked: Any) -> AdapterTrained:
    job = RunStore(settings.adapters_dir).record(TrainRequest(request_id=request_id, agent_id="small", **asked))
    outcome = do_run(settings, job, lambda said: None, dry=dry)
    assert outcome is not None
    return outcome


def folder(settings: TrainerSettings, outcome: AdapterTrained) -> Path:
    assert outcome.adapter_version is not None
    return settings.adapters_dir / "small" / outcome.adapter_version


def changed_log(logs: Path, target: Path, change: Callable[[dict[str, Any], random.Random], None]) -> Path:
    rng = random.Random(4)
    rows = [json.loads(line) for line in (logs / "agent_interactions.jsonl").read_bytes().splitlines()]
    for row in rows:
        change(row, rng)
    return write_log(target, [msgspec.json.encode(row) + b"\n" for row in rows])


def test_a_trained_adapter_is_fit_for_traffic_and_says_what_it_is_made_of(
    settings: TrainerSettings, base_model: Path
) -> None:
    job = RunStore(settings.adapters_dir).record(TrainRequest.model_validate(ASKED))
    seen: list[RunProgressRecord | None] = []

    outcome = do_run(settings, job, lambda said: seen.append(read_progress(job.progress)))

    assert outcome is not None
    assert (outcome.status, outcome.adapter_version, outcome.parent_version) == ("trained", "v1.0.1", "v1.0.0")
    card = check_adapter(folder(settings, outcome), AdapterLimits(max_rank=4))
    assert (card.run_id, card.parent, card.algorithm) == ("run-1", "v1.0.0", "grpo")
    assert (card.base.name, card.base.revision) == ("model", content_sha256(base_model))
    assert card.data.groups == outcome.counts["groups"] > 8
    assert card.hyperparameters["batch"] == 24
    assert outcome.adapter_sha256 == adapter_sha256(folder(settings, outcome))
    assert all(path.stat().st_mode & 0o777 == 0o444 for path in folder(settings, outcome).iterdir())

    # and how it stands was on disk while it went, and after
    first, last = seen[0], read_progress(job.progress)
    assert first is not None and last is not None
    assert first.progress.stage == "reading"
    assert (last.progress.step, last.progress.steps, last.progress.seconds_left) == (6, 6, 0.0)
    assert last.counts == outcome.counts
    assert last.curves == training_report(folder(settings, outcome), "v1.0.1").curves

    # and its report tells each step
    report = json.loads((folder(settings, outcome) / "training_report.json").read_text())
    steps = report["steps"]
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    assert len(steps) == report["plan"]["steps"] == outcome.metrics["steps"] == 6
    assert steps[0]["gap"] == pytest.approx(0, abs=1e-4) and steps[-1]["gap"] > 0.001
    assert steps[0]["effective_share"] == pytest.approx(1, abs=1e-3)
    assert {"loss", "reward", "clip_fraction", "mean_weight", "gradient_norm", "entropy"} <= steps[-1].keys()
    assert steps[0]["good_log_ratio"] == pytest.approx(0, abs=1e-4)
    assert steps[-1]["good_log_ratio"] > 0 and steps[-1]["divergence"] > 0
    assert report["plan"]["micro_batches"] >= 6 and 0.8 < report["plan"]["fill"] <= 1
    assert report["parent_match"]["gap"] == pytest.approx(0, abs=1e-4)
    assert report["data"]["counts"] == outcome.counts

    # and it is not run again, and registered once
    assert train(settings) == outcome
    assert not (settings.adapters_dir / "small" / "v1.0.2").exists()
    register(settings, outcome)
    register(settings, outcome)
    registry = RegistryStore(settings.adapters_dir).read()
    assert registry.revision == 1
    assert registry.agent("small").versions["v1.0.1"].state == "trained"


def test_the_prompts_that_are_kept_for_the_replay_teach_nothing_and_the_card_says_their_share(
    settings: TrainerSettings, logs: Path, tmp_path: Path
) -> None:
    by_task = changed_log(logs, tmp_path / "logs", lambda row, _: row.update(input=f"sort {row['task_id']}"))
    some_are_kept = settings.model_copy(update={"replay_share": 0.3, "logs_dir": by_task})

    outcome = train(some_are_kept, hyperparameters={"min_groups": 1})

    assert outcome.status == "trained", outcome.reason
    assert outcome.counts["lines.replay"] > 0
    assert check_adapter(folder(settings, outcome), AdapterLimits()).hyperparameters["replay_share"] == 0.3


def test_a_run_keeps_how_right_it_was_about_its_time(settings: TrainerSettings) -> None:
    outcome = train(settings, hyperparameters={"epochs": 4, "batch": 24})

    told, took = (outcome.metrics[f"{name}_after_ten_steps_s"] for name in ("told", "took"))
    assert outcome.metrics["steps"] == 12
    assert isinstance(told, float) and isinstance(took, float)
    assert told > 0 and 0 < took < outcome.metrics["seconds"]  # type: ignore[operator]


def test_equal_seeds_give_equal_bytes_and_others_others(settings: TrainerSettings) -> None:
    one, same, other = (train(settings, f"run-{number}", seed=seed) for number, seed in enumerate((5, 5, 6)))

    assert one.adapter_sha256 == same.adapter_sha256
    assert one.adapter_sha256 != other.adapter_sha256
    assert [outcome.adapter_version for outcome in (one, same, other)] == ["v1.0.1", "v1.0.2", "v1.0.3"]


@pytest.mark.parametrize("knobs", [{}, {"beta": 0.1}, {"beta": 0.1, "kl_to": "base", "loss": "gspo"}], ids=str)
def test_a_child_starts_where_its_parent_stands(
    settings: TrainerSettings, base_model: Path, tmp_path: Path, knobs: dict[str, Any]
) -> None:
    # given an adapter, and a log that it wrote
    parent = train(settings)
    register(settings, parent)
    lines = logged_groups(base_model, folder(settings, parent), count=12, each=5, seed=8)
    own = settings.model_copy(update={"logs_dir": write_log(tmp_path / "own", lines)})

    # when it is trained on
    child = train(own, "run-2", parent_version=parent.adapter_version, hyperparameters=knobs)

    # then the log was found to be its own, and only the adapter was saved
    assert child.status == "trained", child.reason
    assert child.metrics["parent_gap"] == pytest.approx(0, abs=1e-4)
    assert child.parent_version == parent.adapter_version
    weights = [load_file(folder(settings, one) / "adapter_model.safetensors") for one in (parent, child)]
    assert weights[0].keys() == weights[1].keys()
    check_adapter(folder(settings, child), AdapterLimits(max_rank=4))


@pytest.fixture
def with_a_candidate(settings: TrainerSettings, base_model: Path, logs: Path, tmp_path: Path) -> TrainerSettings:
    """An experiment's traffic: half of it by the base model, half by a candidate that was made from it."""
    candidate = train(settings, "candidate", hyperparameters={"epochs": 1, "learning_rate": 0.001})
    register(settings, candidate)
    lines = logged_groups(base_model, folder(settings, candidate), count=12, each=6, seed=9)
    both = write_log(tmp_path / "both", [(logs / "agent_interactions.jsonl").read_bytes(), *lines])
    return settings.model_copy(update={"logs_dir": both})


def test_a_candidates_own_answers_teach_where_it_is_close(with_a_candidate: TrainerSettings) -> None:
    both = train(with_a_candidate, "both", parent_version="v1.0.0")
    alone = train(with_a_candidate, "alone", parent_version="v1.0.0", hyperparameters={"candidates": False})

    assert both.counts["groups"] > alone.counts["groups"] + 6
    assert alone.counts["groups.other_version"] == 12
    report = json.loads((folder(with_a_candidate, both) / "training_report.json").read_text())
    assert 1e-6 < report["parent_match"]["divergence"] < 0.1
    assert report["parent_match"]["gap"] == pytest.approx(0, abs=1e-4)  # of the parent's own half


def test_and_not_where_it_is_far_which_is_said_and_refuses_nothing_else(
    with_a_candidate: TrainerSettings, tmp_path: Path
) -> None:
    def far(row: dict[str, Any], rng: random.Random) -> None:
        if row["adapter_version"] == "v1.0.1":
            row["logprobs"] = [value + rng.choice((-1.5, 1.5)) for value in row["logprobs"]]

    settings = with_a_candidate.model_copy(
        update={"logs_dir": changed_log(with_a_candidate.logs_dir, tmp_path / "far", far)}
    )

    few = train(settings, "few", parent_version="v1.0.0", hyperparameters={"min_groups": 13})
    trained = train(settings, "trained", parent_version="v1.0.0")

    assert trained.status == "trained", trained.reason
    assert trained.counts["groups.too_different"] > 6
    assert few.reason is not None
    assert "the samples of v1.0.1 are by too different a policy (the policies diverge by" in few.reason
    assert few.reason.endswith("take fresher data")


def test_a_run_whose_policy_runs_away_ends_with_a_reason_and_publishes_nothing(settings: TrainerSettings) -> None:
    job = RunStore(settings.adapters_dir).record(
        TrainRequest(request_id="run-1", agent_id="small", hyperparameters={"learning_rate": 2.0, "epochs": 8})
    )

    outcome = do_run(settings, job, lambda said: None)

    assert outcome is not None and outcome.status == "refused"
    assert outcome.reason is not None
    assert re.match(r"stopped at step \d+ of 24, and nothing was published: ", outcome.reason), outcome.reason
    assert "nats a token" in outcome.reason
    assert outcome.reason.endswith("train with a lower learning rate or fewer passes")
    assert outcome.counts["groups"] == 12
    assert not (settings.adapters_dir / "small" / "v1.0.1").exists()
    progress = read_progress(job.progress)
    assert progress is not None and progress.curves["divergence"]


def test_a_dry_run_trains_nothing(settings: TrainerSettings) -> None:
    outcome = train(settings, dry=True)

    assert outcome.reason == NOTHING_AGAINST_IT
    assert outcome.counts["groups"] > 8
    assert outcome.metrics["effective_share"] == pytest.approx(1, abs=1e-3)
    assert not (settings.adapters_dir / "small" / "v1.0.1").exists()


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"hyperparameters": {"min_groups": 99}}, r"only 12 useful groups, 99 are needed \(72 lines read"),
        ({"since": 10**9}, "no line starts at byte 1,000,000,000"),
        (
            {"algorithm": "alchemy"},
            "there is no algorithm 'alchemy'; installed are best-of-group-sft, ",
        ),
        ({"hyperparameters": {"learning_rat": 1}}, "learning_rat: Extra inputs are not permitted"),
        ({"hyperparameters": {"lora_rank": 500}}, "lora_rank is 500, and the engines take 64 at most"),
        ({"parent_version": "v1.0.8"}, "there is no version v1.0.8 in the registry"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_can_not_be_done_is_said(settings: TrainerSettings, asked: dict[str, Any], reason: str) -> None:
    outcome = train(settings, **asked)

    assert outcome.status in ("refused", "failed")
    assert outcome.reason is not None
    assert re.search(reason, outcome.reason), outcome.reason


def _shift(by: float) -> Callable[[dict[str, Any], random.Random], None]:
    def change(row: dict[str, Any], rng: random.Random) -> None:
        row["logprobs"] = [value + by for value in row["logprobs"]]

    return change


def test_a_parent_that_does_not_find_its_own_words_is_refused(
    settings: TrainerSettings, logs: Path, tmp_path: Path
) -> None:
    other = settings.model_copy(update={"logs_dir": changed_log(logs, tmp_path / "other", _shift(-0.07))})

    outcome = train(other)

    assert outcome.status == "refused"
    assert outcome.reason is not None and "differ by 0.0700 nats a token" in outcome.reason
    assert outcome.metrics["gap"] == pytest.approx(0.07, abs=1e-3)


def test_a_log_that_leans_on_few_samples_is_refused(settings: TrainerSettings, logs: Path, tmp_path: Path) -> None:
    def lean(row: dict[str, Any], rng: random.Random) -> None:
        if rng.random() < 0.05:
            row["logprobs"][0] -= 6.0

    other = settings.model_copy(update={"logs_dir": changed_log(logs, tmp_path / "other", lean)})

    outcome = train(other, hyperparameters={"max_gap": 10})

    assert outcome.reason is not None
    assert "are worth only" in outcome.reason and "the mean weight of a token is" in outcome.reason


def test_a_broken_log_is_refused(settings: TrainerSettings, logs: Path, tmp_path: Path) -> None:
    whole = (logs / "agent_interactions.jsonl").read_bytes().splitlines(keepends=True)
    broken = write_log(tmp_path / "broken", [*whole, *[b"\x00garbage\n"] * 3])

    outcome = train(settings.model_copy(update={"logs_dir": broken}))

    assert outcome.reason is not None
    assert "the log is broken: 3 of 75 lines can't be read, more than 1.0%" in outcome.reason
    assert outcome.counts["lines.bad_line"] == 3


def other_model(base_model: Path, target: Path) -> Path:
    """Another model of the same name and shape."""
    target.mkdir()
    for path in base_model.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    (target / "config.json").write_text((base_model / "config.json").read_text() + " ")
    return target


def test_another_models_log_is_not_used(settings: TrainerSettings, base_model: Path, tmp_path: Path) -> None:
    moved = settings.model_copy(update={"trainer_model": str(other_model(base_model, tmp_path / "model"))})

    outcome = train(moved)

    assert outcome.reason is not None and "12 other_base" in outcome.reason


def test_another_models_adapter_is_no_parent(
    settings: TrainerSettings, logs: Path, base_model: Path, tmp_path: Path
) -> None:
    # given an adapter, and a log whose engine does not say which model it runs
    parent = train(settings)
    register(settings, parent)
    unnamed = changed_log(logs, tmp_path / "logs", lambda row, rng: row.update(engine="vllm served"))
    model = other_model(base_model, tmp_path / "model")
    moved = settings.model_copy(update={"trainer_model": str(model), "logs_dir": unnamed})

    # when a trainer with another model is to go on from it
    outcome = train(moved, "run-2", parent_version="v1.0.1", hyperparameters={"max_versions_behind": 1})

    # then
    assert outcome.status == "refused"
    assert outcome.reason is not None and "was trained on model@" in outcome.reason


def test_a_run_taken_up_again_reads_what_it_read_before(settings: TrainerSettings, logs: Path, tmp_path: Path) -> None:
    """The log has grown, the defaults have changed: a run that began goes on as it began."""
    copy = changed_log(logs, tmp_path / "logs", lambda row, rng: None)
    settings = settings.model_copy(update={"logs_dir": copy})
    job = RunStore(settings.adapters_dir).record(TrainRequest(request_id="run-1", agent_id="small"))
    run = RunExecution(settings, job, lambda said: None)
    run.outcome(dry=True)
    began = job.resolved
    assert began is not None and began.until is not None

    later = settings.model_copy(update={"trainer_hyperparameters": {"epochs": 9}})
    write_log(copy, group("new", (0.0, 1.0)))
    again = RunExecution(later, job, lambda said: None).outcome(dry=True)

    assert job.resolved == began
    assert again is not None and again.counts["lines"] == 72


def test_feedback_that_comes_while_a_run_is_at_work_is_the_next_ones(
    settings: TrainerSettings, logs: Path, tmp_path: Path
) -> None:
    copy = changed_log(logs, tmp_path / "logs", lambda row, rng: None)
    settings = settings.model_copy(update={"logs_dir": copy})
    task_id = json.loads((copy / "agent_interactions.jsonl").read_text().splitlines()[0])["task_id"]
    jobs = RunStore(settings.adapters_dir)
    job = jobs.record(TrainRequest(request_id="run-1", agent_id="small"))
    give_feedback(copy, [feedback(task_id, 0, 0.5)])
    RunExecution(settings, job, lambda said: None).outcome(dry=True)
    began = job.resolved

    give_feedback(copy, [feedback(task_id, 1, 0.25), feedback(task_id, 2, 0.75)])
    again = RunExecution(settings, job, lambda said: None).outcome(dry=True)
    following = jobs.record(TrainRequest(request_id="run-2", agent_id="small"))
    after = RunExecution(settings, following, lambda said: None).outcome(dry=True)

    assert began is not None and began.feedback_until == len(feedback(task_id, 0, 0.5))
    assert job.resolved == began
    assert again is not None and again.counts["feedback"] == 1
    assert after is not None and after.counts["feedback"] == 3


def test_a_card_says_until_when_sets_were_left_out_also_of_a_run_that_is_taken_up_later(
    settings: TrainerSettings, logs: Path
) -> None:
    """A set that was registered between two attempts is in what the run learned from: the leak check has to see it."""
    job = RunStore(settings.adapters_dir).record(TrainRequest(request_id="run-1", agent_id="small"))
    RunExecution(settings, job, lambda said: None, now=lambda: NOON).outcome(dry=True)
    asked = input_sha256(json.loads((logs / "agent_interactions.jsonl").read_text().splitlines()[0])["input"])
    between = NOON + timedelta(hours=1)
    found = EvaluationSet(name="late.jsonl", sha256="0" * 64, tasks=1)
    register_set(settings.adapters_dir, "small", RegisteredSet(set=found, registered_at=between, inputs=(asked,)))

    ended = RunExecution(settings, job, lambda said: None, now=lambda: NOON + timedelta(hours=2)).outcome()

    assert ended is not None and ended.adapter_version is not None
    assert "lines.evaluation" not in ended.counts
    card = read_card(settings.adapters_dir / "small" / ended.adapter_version)
    assert (card.held_out_at, card.created) == (NOON, NOON + timedelta(hours=2))
    register(settings, ended)
    adapters = RegistryStore(settings.adapters_dir).read().agent("small")
    windows = list(windows_of(settings.adapters_dir, adapters, "small", ended.adapter_version))
    leaks = find_leaks(logs, "small", {ended.adapter_version: windows}, {asked: between})
    assert leaks[ended.adapter_version].inputs == {asked}
