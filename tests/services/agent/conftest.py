"""Fixtures of the agent's tests: settings and work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.messages.work import Sampling, Work
from services.agent.settings import AgentSettings
from tests.making_work import work
from tests.ratchet.adapters.making_adapters import published


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    return AgentSettings.read(agent_engine="echo", adapters_dir=tmp_path / "adapters")


@pytest.fixture
def make_work() -> Callable[..., Work]:
    def make(task_id: str = "t-1", **given: Any) -> Work:
        return work(task_id, **({"sampling": Sampling(n=2, max_tokens=8)} | given))

    return make


@pytest.fixture
def write_adapter(tmp_path: Path) -> Callable[..., Path]:
    """Publish an adapter; the versions of an agent must be written in order."""

    def write(version: str, agent_id: str = "small") -> Path:
        folder = published(tmp_path / "adapters", agent_id, seed=int(version.rpartition(".")[2]))
        assert folder.name == version
        return folder

    return write
