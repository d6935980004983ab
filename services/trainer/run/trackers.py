"""Figures of a run and of its evaluations for a team's trackers: trackio, Weights & Biases, MLflow, TensorBoard.

Each gets them by its own client: the steps by Transformers' callbacks, what `ratchet eval` found by Accelerate's
trackers, at the last step of the run that made the version. A version that no run of ours made has a run of its own
there. The baseline has none: it is the `before` of each of the others. A tracker that fails ends no training: it is
left out from there on, and a warning of the run says so.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.tracking import GeneralTracker, MLflowTracker, TensorBoardTracker, TrackioTracker, WandBTracker
from transformers import TrainerCallback

from ratchet.adapters.manifest import read_card
from ratchet.adapters.registry import RegistryStore
from ratchet.service.errors import AdapterError, one_line
from schemas.messages.training import TrainRequest
from schemas.records.evaluation import Comparison, Evaluation, Interval, VersionResult
from schemas.records.registry import AgentAdapters
from services.trainer.algorithms.algorithm import PolicyTrainer
from services.trainer.settings import Tracker, TrainerSettings

Warn = Callable[[str], None]


class Guarded(TrainerCallback):  # type: ignore[misc]
    """Passes the begin, each step's figures and the end on to a tracker, until it raises."""

    def __init__(self, name: str, tracker: Any, warn: Warn) -> None:
        self._name = name
        self._tracker = tracker
        self._warn = warn

    def on_train_begin(self, *given: Any, **more: Any) -> None:
        self._pass_on("on_train_begin", *given, **more)

    def on_log(self, *given: Any, **more: Any) -> None:
        self._pass_on("on_log", *given, **more)

    def on_train_end(self, *given: Any, **more: Any) -> None:
        self._pass_on("on_train_end", *given, **more)

    def _pass_on(self, event: str, *given: Any, **more: Any) -> None:
        if self._tracker is None:
            return
        try:
            getattr(self._tracker, event)(*given, **more)
        except Exception as error:
            self._tracker = None
            self._warn(f"{self._name} gets no more of this run: {error!r}")


def attach(trainer: PolicyTrainer, settings: TrainerSettings, request: TrainRequest, warn: Warn) -> None:
    """Send the trainer's figures to the trackers of the settings, under the name of agent and run."""
    if not settings.trainer_report_to:
        return
    trainer.args.project = PROJECT
    trainer.args.run_name = run_name(request.agent_id, request.request_id)
    makers = _makers(settings, request)
    # Added to a trainer that is built already: TRL writes to callbacks it is given before they have begun.
    for name in settings.trainer_report_to:
        try:
            trainer.add_callback(Guarded(name, makers[name](), warn))
        except Exception as error:
            warn(f"{name} gets nothing of this run: {error!r}")


def _makers(settings: TrainerSettings, request: TrainRequest) -> dict[Tracker, Callable[[], Any]]:
    from transformers.integrations import MLflowCallback, TensorBoardCallback, TrackioCallback, WandbCallback

    def tensorboard_callback() -> Any:
        from torch.utils.tensorboard import SummaryWriter

        folder = tensorboard_folder(settings, request.agent_id) / request.request_id
        return TensorBoardCallback(SummaryWriter(str(folder)))

    def wandb_callback() -> Any:
        import wandb

        wandb.finish()  # the run before in this process: its callback leaves it open
        os.environ["WANDB_RUN_ID"] = wandb_id(run_name(request.agent_id, request.request_id))
        os.environ["WANDB_RESUME"] = "allow"
        return WandbCallback()

    return {
        "trackio": TrackioCallback,
        "wandb": wandb_callback,
        "mlflow": MLflowCallback,
        "tensorboard": tensorboard_callback,
    }


PROJECT = "ratchet"


def run_name(agent_id: str, run_id: str) -> str:
    return f"{agent_id}-{run_id}"


def wandb_id(name: str) -> str:
    """Return the id by which W&B finds a run again. It takes few characters."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def tensorboard_folder(settings: TrainerSettings, agent_id: str) -> Path:
    """Return the folder in which each run of the agent has a folder."""
    return Path(os.environ.get("TENSORBOARD_LOGGING_DIR") or settings.logs_dir / "tensorboard") / agent_id


def keep_with_the_logs(settings: TrainerSettings) -> None:
    """Set what the clients read from their environment, where it is not set. Call it before they are imported.

    trackio's database lies with the logs; the others call their project as trackio does.
    """
    os.environ.setdefault("TRACKIO_DIR", str((settings.logs_dir / "trackio").absolute()))
    os.environ.setdefault("WANDB_PROJECT", PROJECT)
    os.environ.setdefault("WANDB_DIR", str(settings.logs_dir.absolute()))
    os.environ.setdefault("MLFLOW_EXPERIMENT_NAME", PROJECT)


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
        if one.program is None  # a program's outcome is no figure of one adapter's training
    ]
    return [
        fault
        for name in settings.trainer_report_to
        if (fault := _fault_of(name, partial(_give, name, settings, runs))) is not None
    ]


def figures(evaluation: Evaluation, version: VersionResult) -> dict[str, float]:
    """Return the figures by name, with `_low` and `_high` of each.

    A name is `eval/<set>[/<family>]/single|best_of_<n>/before|after|difference`.
    """
    return dict(_named_figures(f"eval/{_part(evaluation.set.name)}", version))


def _named_figures(beginning: str, version: VersionResult) -> Iterator[tuple[str, float]]:
    for result in version.results:
        of = beginning if result.family is None else f"{beginning}/{_part(result.family)}"
        yield from _compared_metrics(f"{of}/single", result.single)
        yield from _compared_metrics(f"{of}/best_of_{result.samples}", result.best)
        yield f"{of}/tasks", float(result.single.difference.tasks)


def _compared_metrics(of: str, found: Comparison) -> Iterator[tuple[str, float]]:
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
    """Return MLflow's own id of the newest run with that name; None where it has none."""
    import mlflow

    found = mlflow.search_runs(
        experiment_names=[os.environ["MLFLOW_EXPERIMENT_NAME"]],
        filter_string=f"attributes.run_name = '{name}'",
        max_results=1,
        output_format="list",
    )
    return found[0].info.run_id if found else None
