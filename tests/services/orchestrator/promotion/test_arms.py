"""A task that names a version gets it if it is in traffic, and no experiment counts it."""

from __future__ import annotations

import pytest

from ratchet.service.errors import Reject
from schemas.messages.task import Task
from schemas.records.adapter_state import AdapterState
from schemas.records.registry import AdapterEntry, AgentAdapters
from services.orchestrator.promotion.arms import Arms

SHA = "a" * 64


def arms() -> Arms:
    states = {
        "v1.0.0": AdapterState.SUPERSEDED,
        "v1.0.1": AdapterState.SUPERSEDED,
        "v1.0.2": AdapterState.STABLE,
        "v1.0.3": AdapterState.REJECTED,
    }
    versions = {
        version: AdapterEntry(version=version, state=state, sha256=SHA, folder=f"small/{version}")
        for version, state in states.items()
    }
    found = Arms("small")
    found.follow(AgentAdapters(primary="v1.0.2", previous="v1.0.1", versions=versions), None)
    return found


@pytest.mark.parametrize("version", ["v1.0.0", "v1.0.1", "v1.0.2"])
def test_the_base_model_and_what_is_in_traffic_can_be_asked_for(version: str) -> None:
    task = Task(task_id="t1", input="x", adapter_version=version)

    arms().check(task)
    arm = arms().arm_for(task, 7)

    assert (arm.adapter_version, arm.experiment_id, arm.propensity, arm.sequence) == (version, None, 1.0, 7)


@pytest.mark.parametrize("version", ["v1.0.3", "v9.9.9"])
def test_other_versions_are_refused_with_those_there_are(version: str) -> None:
    task = Task(task_id="t1", input="x", adapter_version=version)

    with pytest.raises(Reject, match=r"does not answer with v\S+ now, but with v1\.0\.0, v1\.0\.1, v1\.0\.2"):
        arms().check(task)
