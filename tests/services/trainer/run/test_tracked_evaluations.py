"""An evaluation in the trackers that teams have, beside the steps of the run that made the version."""

from __future__ import annotations

from pathlib import Path

from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from schemas.records.evaluation import (
    Comparison,
    EvaluatedVersion,
    Evaluation,
    EvaluationSet,
    FamilyResult,
    Interval,
    VersionResult,
)
from services.trainer.settings import TrainerSettings
from tests.programs import run_module
from tests.ratchet.adapters.making_adapters import NOON, published
from tests.ratchet.adapters.making_decisions import decided
from tests.services.trainer.run.test_trackers import of_tensorboard, of_trackio

STEPS = 12
ALL = "eval/held_out.jsonl"


def compared(gain: float) -> Comparison:
    def interval(mean: float) -> Interval:
        return Interval(mean=mean, low=mean - 0.125, high=mean + 0.125, tasks=20)

    return Comparison(before=interval(0.25), after=interval(0.25 + gain), difference=interval(gain))


def evaluation() -> Evaluation:
    """The version gains half singly, a quarter by the best of eight; in `two words` nothing."""
    families = (
        FamilyResult(samples=8, single=compared(0.5), best=compared(0.25)),
        FamilyResult(family="two words: a/b", samples=8, single=compared(0.0), best=compared(0.0)),
    )
    return Evaluation(
        name="held_out-1",
        agent_id="small",
        at=NOON,
        set=EvaluationSet(name="held_out.jsonl", sha256="0" * 64, tasks=20),
        scorer="verifier:exact 1",
        versions=(EvaluatedVersion(version="v1.0.0"), EvaluatedVersion(version="v1.0.1")),
        results=(VersionResult(version="v1.0.1", results=families),),
    )


def trained(adapters_dir: Path, run_id: str | None = "run-1") -> None:
    """A version of that run."""
    store = RegistryStore(adapters_dir)
    folder = published(store.folder, run_id=run_id, metrics={"steps": STEPS})
    decided(store, registration(folder, store.folder))


def test_each_figure_has_its_ends_and_a_name_that_every_tracker_takes() -> None:
    from services.trainer.run.trackers import figures

    (version,) = evaluation().results
    found = figures(evaluation(), version)

    assert found[f"{ALL}/single/difference"] == 0.5
    assert (found[f"{ALL}/single/difference_low"], found[f"{ALL}/single/difference_high"]) == (0.375, 0.625)
    assert (found[f"{ALL}/best_of_8/before"], found[f"{ALL}/best_of_8/after"]) == (0.25, 0.5)
    assert found[f"{ALL}/two words_ a_b/single/difference"] == 0.0
    assert found[f"{ALL}/tasks"] == 20
    assert len(found) == 2 * (2 * 3 * 3 + 1)


def test_trackio_and_tensorboard_have_it_in_the_run_of_the_version(tmp_path: Path) -> None:
    """The trainer's process sends it, as `ratchet eval` starts it."""
    trained(tmp_path / "adapters")
    (tmp_path / "found.json").write_bytes(evaluation().encode())
    settings = {"RATCHET_TRAINER_REPORT_TO": "trackio,tensorboard"}

    ran = run_module("services.trainer.train", "--evaluation", "found.json", folder=tmp_path, settings=settings)

    assert (ran.code, ran.out) == (0, ""), ran.err
    (row,) = of_trackio(tmp_path / "logs" / "trackio", "small-run-1")
    assert (row[f"{ALL}/single/after"], row["train/global_step"]) == (0.75, STEPS)
    curves = of_tensorboard(tmp_path / "logs" / "tensorboard" / "small" / "run-1")
    assert curves[f"{ALL}/single/after_low"] == [0.625]


def test_a_tracker_that_fails_is_named_and_the_others_have_it(tmp_path: Path) -> None:
    from services.trainer.run.trackers import track_evaluation

    trained(tmp_path / "adapters", run_id=None)
    (tmp_path / "a-file").write_text("no folder can be made below it")
    given = {"adapters_dir": tmp_path / "adapters", "trainer_report_to": "tensorboard"}
    well, badly = (TrainerSettings.read(logs_dir=tmp_path / logs, **given) for logs in ("logs", "a-file"))

    (fault,) = track_evaluation(badly, evaluation())

    assert fault.startswith("tensorboard did not get the evaluation: ")
    assert track_evaluation(well, evaluation()) == []
    assert of_tensorboard(tmp_path / "logs" / "tensorboard" / "small" / "v1.0.1")[f"{ALL}/single/after"]
