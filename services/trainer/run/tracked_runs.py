"""What a run is called in a team's trackers, and where they keep it: the same for its steps and its evaluations."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from services.trainer.settings import TrainerSettings

PROJECT = "ratchet"


def run_name(agent_id: str, run_id: str) -> str:
    return f"{agent_id}-{run_id}"


def wandb_id(name: str) -> str:
    """By which W&B finds a run again; it takes few characters."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def tensorboard_folder(settings: TrainerSettings, agent_id: str) -> Path:
    """Each run has a folder there."""
    return Path(os.environ.get("TENSORBOARD_LOGGING_DIR") or settings.logs_dir / "tensorboard") / agent_id


def keep_with_the_logs(settings: TrainerSettings) -> None:
    """What the clients know by their environment, as far as it is not said there: before they are imported.

    trackio's database lies with the logs; the others call their project as trackio does.
    """
    os.environ.setdefault("TRACKIO_DIR", str((settings.logs_dir / "trackio").absolute()))
    os.environ.setdefault("WANDB_PROJECT", PROJECT)
    os.environ.setdefault("WANDB_DIR", str(settings.logs_dir.absolute()))
    os.environ.setdefault("MLFLOW_EXPERIMENT_NAME", PROJECT)
