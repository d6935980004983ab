"""One tiny base model for all tests of the trainer, and a log that it wrote.

What needs torch is imported in the fixtures, so that tests that ask for none of them do not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.trainer.settings import TrainerSettings
from tests.services.trainer.forked_runs import ForkedRuns, forked_runs
from tests.services.trainer.making_logs import write_log


@pytest.fixture(scope="session")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    from tests.ratchet.models.tiny_model import save_tiny_model

    torch.set_num_threads(1)
    return save_tiny_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="session")
def logs(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve groups of six, by the base model."""
    from tests.services.trainer.tiny_policy import logged_groups

    lines = logged_groups(base_model, None, count=12, each=6, seed=1)
    return write_log(tmp_path_factory.mktemp("logs"), lines)


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkedRuns]:
    with forked_runs() as forks:
        yield forks


@pytest.fixture
def settings(base_model: Path, logs: Path, tmp_path: Path) -> TrainerSettings:
    return settings_of(base_model, logs, tmp_path / "adapters")


def settings_of(base_model: Path, logs: Path, adapters: Path) -> TrainerSettings:
    return TrainerSettings.read(
        logs_dir=logs,
        adapters_dir=adapters,
        trainer_model=str(base_model),
        trainer_device="cpu",
        trainer_hyperparameters={"epochs": 2, "batch": 24, "lora_rank": 4, "learning_rate": 0.003},
        trainer_checkpoint_every_s=1000.0,
        replay_share=0.0,
    )
