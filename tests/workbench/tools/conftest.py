from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.workbench.tools.world import World
from workbench.sandbox import bubblewrap
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.settings import SandboxSettings


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A world without a sandbox: a test that needs one opens its own."""
    made = World(tmp_path)
    yield made
    await made.toolbox.close()


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    assert bubblewrap.missing_programs() == [], "sh infra/setup-debian.sh installs it"
    return Sandbox.open(SandboxSettings())


@pytest.fixture
async def sandboxed(tmp_path: Path, sandbox: Sandbox) -> AsyncIterator[World]:
    made = World(tmp_path, sandbox)
    yield made
    await made.toolbox.close()
