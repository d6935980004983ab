"""A run's figures go to the trackers a team has: trackio, Weights & Biases, MLflow, TensorBoard; by their own clients.

Transformers has a callback for each. They are added to a trainer that is built already, because TRL writes to those it
is told of before they have begun. A tracker that fails, a server that is away, say, ends no training: it is left out
from there on, and a warning of the run says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from schemas.messages.train_request import TrainRequest
from services.trainer.algorithms.algorithm import PolicyTrainer
from services.trainer.run.tracked_runs import PROJECT, run_name, tensorboard_folder, wandb_id
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
    """From now on the trainer's figures go to the trackers of the settings too, under the name of agent and run."""
    if not settings.trainer_report_to:
        return
    trainer.args.project = PROJECT
    trainer.args.run_name = run_name(request.agent_id, request.request_id)
    makers = _makers(settings, request)
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
