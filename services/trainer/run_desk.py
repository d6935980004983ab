"""Looks up runs for the API: those on disk, and how the one in hand stands. Blocks on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from schemas.api.runs import RunDetail, RunState, RunView
from schemas.message import DecodeError
from services.telemetry import Log
from services.trainer.jobs import Job, Jobs
from services.trainer.run_views import run_detail, run_view
from services.trainer.standing import RunStanding

log = Log("trainer")


class RunDesk:
    """`standing`: of the run in hand, if there is one."""

    def __init__(self, adapters_dir: Path, standing: Callable[[], RunStanding | None]) -> None:
        self._adapters_dir = adapters_dir
        self._jobs = Jobs(adapters_dir)
        self._standing = standing

    def view(self, job: Job) -> RunView:
        return run_view(job, self._of(job.request.request_id))

    def views(self, agent_id: str | None = None, state: RunState | None = None) -> list[RunView]:
        """The newest first."""
        found = (view for view in self._all() if agent_id in (None, view.agent_id) and state in (None, view.state))
        return sorted(found, key=lambda view: (view.asked_at, view.run_id), reverse=True)

    def detail(self, run_id: str) -> RunDetail | None:
        """None if no run of that id is recorded."""
        for job in self._jobs.named(run_id):
            return run_detail(job, self._adapters_dir, self._of(run_id))
        return None

    def _all(self) -> Iterator[RunView]:
        for job in self._jobs.every():
            try:
                yield self.view(job)
            except FileNotFoundError:
                continue  # its record was removed meanwhile
            except DecodeError as error:
                log.warning("unreadable", f"{job.folder} can't be read, it is not listed: {error.reason}")

    def _of(self, run_id: str) -> RunStanding | None:
        standing = self._standing()
        return standing if standing is not None and standing.run_id == run_id else None
