"""Both stacks, recorded once."""

from __future__ import annotations

import pytest

from infra.render.manifests import Manifests, manifests
from infra.render.recording import Recording, record, stack_configuration
from tests.infra.seeded_mistakes import with_manager, with_programs


@pytest.fixture(scope="session")
def prod_recording() -> Recording:
    return record("prod", stack_configuration("prod"))


@pytest.fixture(scope="session")
def dev_recording() -> Recording:
    return record("dev", stack_configuration("dev"))


@pytest.fixture(scope="session")
def prod(prod_recording: Recording) -> Manifests:
    return manifests(prod_recording)


@pytest.fixture(scope="session")
def programs() -> Manifests:
    """`prod`, with runners and a scorer that runs code."""
    return manifests(record("prod", with_programs()))


@pytest.fixture(scope="session")
def jobs() -> Manifests:
    """`prod`, with a manager, and a runner for the agents that are registered with it."""
    return manifests(record("prod", with_manager()))


@pytest.fixture(scope="session")
def dev(dev_recording: Recording) -> Manifests:
    return manifests(dev_recording)
