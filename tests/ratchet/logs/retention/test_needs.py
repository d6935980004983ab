"""Whoever still needs a part of the logs is found on the disk alone, as the services leave it there."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from ratchet.adapters.registry import RegistryStore
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS
from ratchet.logs.retention.needs import Need, needs
from ratchet.logs.segments import Segment
from ratchet.runs.store import RunStore
from ratchet.service.errors import JournalError
from schemas.messages.training import AdapterTrained, TrainRequest
from schemas.records.decision import StartExperiment, Validate
from services.orchestrator.ledger.index import TaskIndex
from services.orchestrator.training.trigger import TrainingState
from tests.ratchet.adapters.making_decisions import decided, experiment, register

NOW = datetime(2031, 1, 1, tzinfo=UTC)


def index_at(folder: Path, position: int) -> TaskIndex:
    index = TaskIndex(folder / "index.sqlite")
    index.commit(dict.fromkeys((ASSIGNMENTS, INTERACTIONS), position))
    return index


def windows(folder: Path, follower: int = 0) -> list[tuple[str, int, bool]]:
    """Besides the index's own."""
    return [(need.log, need.position, need.yields) for need in needs(folder, folder / "adapters", follower).windows[2:]]


def test_open_tasks_and_what_the_index_has_not_read_as_last_committed(tmp_path: Path) -> None:
    index = index_at(tmp_path, 1000)
    for sequence in range(3):
        index.admit(sequence, f"t{sequence}", deadline=1.0, work=b"work")
    index.settle("t0", logged=1, result=b"{}")
    assert needs(tmp_path, tmp_path / "adapters").first_open is None

    index.commit()

    found = needs(tmp_path, tmp_path / "adapters")
    assert found.first_open == 1
    assert [(need.log, need.position) for need in found.windows] == [(ASSIGNMENTS, 1000), (INTERACTIONS, 1000)]
    assert found.against(Segment(tmp_path, ASSIGNMENTS, 0, 1000)) is None
    assert "not read" in str(found.against(Segment(tmp_path, ASSIGNMENTS, 0, 1001)))
    index.close()
    assert needs(tmp_path, tmp_path / "adapters") == found


def test_the_window_of_a_training_asked_for_is_fixed_and_that_of_the_next_yields(tmp_path: Path) -> None:
    index = index_at(tmp_path, 1000)
    index.write_note("training/small", msgspec.json.encode(TrainingState(since=500, asked_since=200, pending="run")))
    index.write_note("training/other", msgspec.json.encode(TrainingState(since=700)))
    index.commit()
    index.close()

    assert sorted(windows(tmp_path)) == [
        (INTERACTIONS, 200, False),
        (INTERACTIONS, 500, True),
        (INTERACTIONS, 700, True),
    ]


def test_a_run_the_trainer_has_not_ended_keeps_what_it_reads(tmp_path: Path) -> None:
    index_at(tmp_path, 1000).close()
    jobs = RunStore(tmp_path / "adapters")
    asked, resolved, ended = (
        jobs.record(TrainRequest(request_id=name, agent_id="small", since=since))
        for name, since in (("asked", 10), ("resolved", 0), ("ended", 0))
    )
    resolved.resolved = resolved.request.model_copy(update={"since": 20, "until": 900})
    ended.outcome = AdapterTrained(request_id="ended", agent_id="small", status="refused", reason="too few")
    assert asked.outcome is None

    assert sorted(windows(tmp_path)) == [(INTERACTIONS, 10, False), (INTERACTIONS, 20, False)]


def test_a_running_experiment_keeps_its_evidence_in_both_logs(tmp_path: Path) -> None:
    index_at(tmp_path, 1000).close()
    began = {"positions": {ASSIGNMENTS: 300, INTERACTIONS: 400}}
    running = experiment("v1.0.1").model_copy(update={"parameters": began})
    moves = (register("v1.0.1"), Validate(version="v1.0.1"), StartExperiment(experiment=running))
    decided(RegistryStore(tmp_path / "adapters"), *moves)

    assert windows(tmp_path) == [(ASSIGNMENTS, 300, False), (INTERACTIONS, 400, False)]


def test_a_fleet_that_follows_keeps_its_own_evidence_and_nothing_for_trainings_of_the_other(tmp_path: Path) -> None:
    # given an experiment of two fleets, and a training of the one that decides
    index_at(tmp_path, 1000).close()
    began = {
        "positions": {ASSIGNMENTS: 900, INTERACTIONS: 950, "fleet/1/assignments": 30, "fleet/1/agent_interactions": 40}
    }
    running = experiment("v1.0.1").model_copy(update={"parameters": began})
    moves = (register("v1.0.1"), Validate(version="v1.0.1"), StartExperiment(experiment=running))
    decided(RegistryStore(tmp_path / "adapters"), *moves)
    RunStore(tmp_path / "adapters").record(TrainRequest(request_id="theirs", agent_id="small", since=5))

    # when both ask what they need, then the other needs its own lines alone
    assert (INTERACTIONS, 5, False) in windows(tmp_path)
    assert windows(tmp_path, follower=1) == [(ASSIGNMENTS, 30, False), (INTERACTIONS, 40, False)]


def test_without_an_index_nothing_is_known_to_be_closed(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="which tasks are open"):
        needs(tmp_path, tmp_path / "adapters")


def test_what_yields_is_not_asked_under_pressure(tmp_path: Path) -> None:
    index_at(tmp_path, 1000).close()
    index = TaskIndex(tmp_path / "index.sqlite")
    index.write_note("training/small", msgspec.json.encode(TrainingState(since=500)))
    index.commit()
    index.close()
    found, segment = needs(tmp_path, tmp_path / "adapters"), Segment(tmp_path, INTERACTIONS, 0, 600)

    assert found.windows[2:] == (Need(INTERACTIONS, 500, "the next training of agent small will read it", yields=True),)
    assert found.against(segment) is not None
    assert found.against(segment, pressed=True) is None
