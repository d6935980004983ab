"""Looks up the runs on disk. Blocks; safe in several threads. A run that has ended is read once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from ratchet.service.telemetry import Log
from ratchet.training_runs.store import Job, Jobs
from ratchet.training_runs.views import run_detail, run_view
from schemas.api.runs import RunDetail, RunState, RunView
from schemas.messages.base import DecodeError

log = Log("runs")


class TrainingRunReader:
    def __init__(self, adapters_dir: Path) -> None:
        self._adapters_dir = adapters_dir
        self._jobs = Jobs(adapters_dir)
        self._ended: dict[tuple[Path, datetime], RunView] = {}
        self._unreadable: set[Path] = set()

    def views(self, agent_id: str | None = None, state: RunState | None = None) -> list[RunView]:
        """The newest first."""
        return listed_runs(self._all(), agent_id, state)

    def detail(self, run_id: str) -> RunDetail | None:
        """None if no run of that id is recorded, or its record is damaged."""
        for job in self._jobs.named(run_id):
            try:
                return run_detail(run_view(job), self._adapters_dir, job)
            except FileNotFoundError:
                continue  # its record was removed meanwhile
            except DecodeError as error:
                self._say(job, error)
        return None

    def _all(self) -> Iterator[RunView]:
        ended: dict[tuple[Path, datetime], RunView] = {}
        for job in self._jobs.every():
            try:
                key = job.folder, job.asked_at
                view = self._ended.get(key) or run_view(job)
            except FileNotFoundError:
                continue  # its record was removed meanwhile
            except DecodeError as error:
                self._say(job, error)
                continue
            if view.ended:
                ended[key] = view
            yield view
        self._ended = ended

    def _say(self, job: Job, error: DecodeError) -> None:
        """Once."""
        if job.folder not in self._unreadable:
            log.warning("unreadable", f"{job.folder} can't be read, it is not listed: {error.reason}")
        self._unreadable.add(job.folder)


def listed_runs(views: Iterable[RunView], agent_id: str | None, state: RunState | None) -> list[RunView]:
    """Of that agent and in that state, where given; the newest first."""
    chosen = (view for view in views if agent_id in (None, view.agent_id) and state in (None, view.state))
    return sorted(chosen, key=place_of_run, reverse=True)


def place_of_run(view: RunView) -> tuple[str, str]:
    """What lists of runs are ordered by: when it was asked for, or else heard of, and its id."""
    at = view.asked_at or view.ended_at
    return at.isoformat(timespec="microseconds") if at else "", view.run_id
