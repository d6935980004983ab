"""What `ratchet eval` found of a version goes to the trackers, into the run that made it: by Accelerate's trackers.

The figures stand at the last step of that run, whose result they measure. A version that no run of ours made has a run
of its own there. The baseline has none: it is the `before` of each of the others.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from accelerate import PartialState
from accelerate.tracking import GeneralTracker, MLflowTracker, TensorBoardTracker, TrackioTracker, WandBTracker

from ratchet.adapters.manifest import read_card
from ratchet.adapters.registry import RegistryStore
from ratchet.service.errors import AdapterError, one_line
from schemas.records.evaluation import Comparison, Evaluation, Interval, VersionResult
from schemas.records.registry import AgentAdapters
from services.trainer.run.tracked_runs import PROJECT, run_name, tensorboard_folder, wandb_id
from services.trainer.settings import Tracker, TrainerSettings

NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.\- ]")
"""MLflow takes no more; a slash parts a name."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """`run_id`: the training's, or the version. `steps`: of the training; 0 where it is not known."""

    agent_id: str
    run_id: str
    steps: int

    @property
    def name(self) -> str:
        return run_name(self.agent_id, self.run_id)


def track_evaluation(settings: TrainerSettings, evaluation: Evaluation) -> list[str]:
    """A sentence for each tracker that failed; the others have it all."""
    PartialState(cpu=True)  # asked by the trackers: it is to take no GPU for this
    agent = RegistryStore(settings.adapters_dir).read().agent(evaluation.agent_id)
    runs = [
        (_run_of(settings, evaluation.agent_id, agent, one.version), figures(evaluation, one))
        for one in evaluation.results
    ]
    return [
        fault
        for name in settings.trainer_report_to
        if (fault := _fault_of(name, partial(_give, name, settings, runs))) is not None
    ]


def figures(evaluation: Evaluation, version: VersionResult) -> dict[str, float]:
    """By name: `eval/<set>[/<family>]/single|best_of_<n>/before|after|difference`, and `_low`, `_high` of each."""
    return dict(_named_figures(f"eval/{_part(evaluation.set.name)}", version))


def _named_figures(beginning: str, version: VersionResult) -> Iterator[tuple[str, float]]:
    for result in version.results:
        of = beginning if result.family is None else f"{beginning}/{_part(result.family)}"
        yield from _compared(f"{of}/single", result.single)
        yield from _compared(f"{of}/best_of_{result.samples}", result.best)
        yield f"{of}/tasks", float(result.single.difference.tasks)


def _compared(of: str, found: Comparison) -> Iterator[tuple[str, float]]:
    intervals: tuple[tuple[str, Interval], ...] = (
        ("before", found.before),
        ("after", found.after),
        ("difference", found.difference),
    )
    for name, interval in intervals:
        ends = {"": interval.mean, "_low": interval.low, "_high": interval.high}
        yield from ((f"{of}/{name}{end}", value) for end, value in ends.items() if math.isfinite(value))


def _part(name: str) -> str:
    return NOT_IN_A_NAME.sub("_", name)


def _run_of(settings: TrainerSettings, agent_id: str, agent: AgentAdapters, version: str) -> TrackedRun:
    entry = agent.versions.get(version)
    if entry is None or entry.folder is None:
        return TrackedRun(agent_id, version, 0)
    try:
        card = read_card(settings.adapters_dir / entry.folder)
    except AdapterError:  # removed since it answered
        return TrackedRun(agent_id, version, 0)
    steps = card.metrics.get("steps")
    return TrackedRun(agent_id, card.run_id or version, steps if isinstance(steps, int) else 0)


def _fault_of(name: Tracker, give: Callable[[], None]) -> str | None:
    try:
        give()
    except Exception as error:  # whatever a client raises
        return f"{name} did not get the evaluation: {one_line(str(error) or repr(error))}"
    return None


def _give(name: Tracker, settings: TrainerSettings, runs: Sequence[tuple[TrackedRun, Mapping[str, float]]]) -> None:
    for run, found in runs:
        tracker = _tracker(name, settings, run)
        tracker.start()
        try:
            if name in ("tensorboard", "mlflow"):
                tracker.log(dict(found), step=run.steps)
            else:  # these count what they are told; Transformers tells them a step by this name
                tracker.log({**found, "train/global_step": run.steps})
        finally:
            tracker.finish()


def _tracker(name: Tracker, settings: TrainerSettings, run: TrackedRun) -> GeneralTracker:
    makers: dict[Tracker, Callable[[], Any]] = {
        "trackio": lambda: TrackioTracker(PROJECT, name=run.name, resume="allow", auto_log_gpu=False),
        "wandb": lambda: WandBTracker(
            os.environ["WANDB_PROJECT"], name=run.name, id=wandb_id(run.name), resume="allow"
        ),
        "mlflow": lambda: MLflowTracker(
            os.environ["MLFLOW_EXPERIMENT_NAME"], run_id=_mlflow_run(run.name), run_name=run.name
        ),
        "tensorboard": lambda: TensorBoardTracker(run.run_id, tensorboard_folder(settings, run.agent_id)),
    }
    return makers[name]()


def _mlflow_run(name: str) -> str | None:
    """MLflow's own id of the newest run with that name; None where it has none."""
    import mlflow

    found = mlflow.search_runs(
        experiment_names=[os.environ["MLFLOW_EXPERIMENT_NAME"]],
        filter_string=f"attributes.run_name = '{name}'",
        max_results=1,
        output_format="list",
    )
    return found[0].info.run_id if found else None
