"""Runs on disk, looked up: while they wait, run and have ended, and while a trainer changes them."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from ratchet.http.work import Threads
from ratchet.runs.api import TrainingRuns
from ratchet.runs.store import RunFolder, RunStore
from schemas.messages.base import Metadata
from schemas.messages.training import AdapterTrained, TrainRequest
from tests.ratchet.adapters.making_adapters import NOON


def recorded(folder: Path, request_id: str, **asked: Any) -> RunFolder:
    return RunStore(folder).record(TrainRequest(request_id=request_id, agent_id="small", **asked))


def refused(request_id: str, reason: str) -> AdapterTrained:
    ended = Metadata(timestamp=NOON, source="trainer")
    return AdapterTrained(request_id=request_id, agent_id="small", status="refused", reason=reason, metadata=ended)


def runs_in(folder: Path) -> TrainingRuns:
    return TrainingRuns(folder, Threads("test"))


async def test_who_asked_and_why_and_when(tmp_path: Path) -> None:
    asked = Metadata.model_validate({"timestamp": NOON, "source": "orchestrator", "reason": "64 new useful groups"})
    recorded(tmp_path, "r-1", metadata=asked)

    (view,) = await runs_in(tmp_path).views()

    assert (view.state, view.asked_by, view.why, view.asked_at) == (
        "queued",
        "orchestrator",
        "64 new useful groups",
        NOON,
    )


async def test_a_clock_ahead_of_ours_asks_when_it_was_recorded(tmp_path: Path) -> None:
    job = recorded(tmp_path, "r-1", metadata=Metadata(timestamp=NOON + timedelta(days=36500)))

    (view,) = await runs_in(tmp_path).views()

    assert view.asked_at == job.asked_at


async def test_a_run_that_ended_is_read_once_and_one_that_was_removed_and_asked_again_anew(tmp_path: Path) -> None:
    runs, job = runs_in(tmp_path), recorded(tmp_path, "r-1")
    job.outcome = refused("r-1", "too few groups: 3 of 8")
    (first,) = await runs.views()
    (again,) = await runs.views()
    job.remove()
    removed = await runs.views()
    anew = recorded(tmp_path, "r-1")
    os.utime(anew.path / "request.json", (1, 1))
    (waiting,) = await runs.views()

    assert first is again
    assert first.reason == "too few groups: 3 of 8"
    assert removed == []
    assert (waiting.state, waiting.reason) == ("queued", None)


async def test_a_damaged_record_is_passed_over(tmp_path: Path) -> None:
    runs = runs_in(tmp_path)
    recorded(tmp_path, "r-1")
    (recorded(tmp_path, "r-2").path / "request.json").write_text("half a rec")
    (tmp_path / "small/.jobs/left-by-a-kill").mkdir()

    assert [view.run_id for view in await runs.views()] == ["r-1"]
    assert await runs.detail("r-2") is None
    assert await runs.detail("r-9") is None
