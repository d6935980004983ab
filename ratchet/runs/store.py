"""Training runs on disk: what was asked, how far it got, how it ended. Written before the broker's message is acked.

`<adapters>/<agent>/.jobs/<request>/` holds request.json, and later resolved.json (the request with all choices made),
checkpoints/, progress.json (how it goes), outcome.json, and the marks `announced` and `cancelled`. The process that
does a run holds the folder's lock and the agent's (`<adapters>/<agent>/.training.lock`), so an agent has one run at
work at a time. Both locks die with their process. An unfinished run whose lock is free is to be resumed.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from ratchet.files.atomic_file import replace_file, sync_folder
from ratchet.files.folder_lock import FolderLock
from ratchet.runs.progress import read_progress
from ratchet.runs.run import TrainingRun, place_of_run
from schemas.api.runs import RunView
from schemas.messages.base import DecodeError, Metadata
from schemas.messages.training import AdapterTrained, TrainRequest

JOBS = ".jobs"
TRAINING_LOCK = ".training.lock"
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class RunFolder:
    """One run's folder. Blocks on the disk throughout."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.progress = path / "progress.json"
        self.held_out = path / "evaluation_inputs.json"
        """Sums of inputs that this run may not learn from, as they were when it was begun."""
        self.untaught = path / "untaught_inputs.json"
        """Sums of inputs whose demonstrations do not teach in this run, as they were when it was begun."""
        self._request = path / "request.json"
        self._resolved = path / "resolved.json"
        self._outcome = path / "outcome.json"
        self._announced = path / "announced"
        self._cancelled = path / "cancelled"
        self._attempts = path / "attempts"
        self._meeting = path / "meeting"

    @property
    def run(self) -> TrainingRun:
        """Read the run. Raises FileNotFoundError for one that is just being removed, DecodeError for a damaged one."""
        request = self.resolved or self.request
        attempts = self.attempts
        asked_at = min(self.asked_at, request.metadata.timestamp or self.asked_at)
        return TrainingRun(
            request=request,
            asked_at=asked_at,
            attempts=attempts,
            progress=read_progress(self.progress) if attempts else None,
            outcome=self.outcome,
        )

    @property
    def request(self) -> TrainRequest:
        """Request as it was made. Raises FileNotFoundError where a kill left only a folder."""
        return TrainRequest.decode(self._request.read_bytes())

    @property
    def asked_at(self) -> datetime:
        """Time when the request was recorded. Raises FileNotFoundError."""
        return datetime.fromtimestamp(self._request.stat().st_mtime, UTC)

    @property
    def resolved(self) -> TrainRequest | None:
        """Request with parent, window and hyperparameters fixed: a resumed run must go on with these."""
        return TrainRequest.decode(self._resolved.read_bytes()) if self._resolved.exists() else None

    @resolved.setter
    def resolved(self, request: TrainRequest) -> None:
        replace_file(self._resolved, request.encode())

    @property
    def outcome(self) -> AdapterTrained | None:
        return AdapterTrained.decode(self._outcome.read_bytes()) if self._outcome.exists() else None

    @outcome.setter
    def outcome(self, trained: AdapterTrained) -> None:
        """End the run, and remove what only a resumed run needs."""
        replace_file(self._outcome, trained.encode())
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    @property
    def announced(self) -> bool:
        return self._announced.exists()

    @announced.setter
    def announced(self, value: bool) -> None:
        if value:
            self._announced.touch()
        else:
            self._announced.unlink(missing_ok=True)

    @property
    def attempts(self) -> int:
        """Number of starts since its newest checkpoint."""
        return self._read_attempts()[0]

    @property
    def meeting(self) -> str | None:
        """Address at which the machines of a spread run meet, and the nanoseconds at which this attempt began."""
        return self._meeting.read_text() if self._meeting.exists() else None

    @meeting.setter
    def meeting(self, place: str) -> None:
        replace_file(self._meeting, place.encode())

    def begin(self, checkpoint: str) -> None:
        """Count a start at that checkpoint. At another one than the last time the count begins anew."""
        count, before = self._read_attempts()
        self._write_attempts(count + 1 if checkpoint == before else 1, checkpoint)

    def withdraw(self) -> None:
        """Take back the last start: it was cut short in an orderly way."""
        count, checkpoint = self._read_attempts()
        self._write_attempts(max(0, count - 1), checkpoint)

    def _read_attempts(self) -> tuple[int, str]:
        count, _, checkpoint = self._attempts.read_text().partition(" ") if self._attempts.exists() else ("0", "", "")
        return int(count), checkpoint

    def _write_attempts(self, count: int, checkpoint: str) -> None:
        replace_file(self._attempts, f"{count} {checkpoint}".encode())

    @contextmanager
    def claim(self, *, alone: bool = True) -> Iterator[bool]:
        """Yield whether it is ours in the block: no other process does it, nor (`alone`) another run of its agent."""
        own, agents = FolderLock(self.path), FolderLock(self.path.parent.parent, TRAINING_LOCK)
        try:
            yield (not alone or agents.try_acquire()) and own.try_acquire()
        finally:
            own.release()
            agents.release()

    @property
    def is_free(self) -> bool:
        """Tell whether no process does it, nor another run of its agent."""
        with self.claim() as free:
            return free

    @property
    def is_taken(self) -> bool:
        """Tell whether a process does it."""
        lock = FolderLock(self.path)
        free = lock.try_acquire(sign=False)
        lock.release()
        return not free

    @property
    def holder(self) -> str:
        """Process that does it, or did it last, as `pid 123 on host`."""
        return FolderLock(self.path).holder()

    @property
    def cancelled_by(self) -> str | None:
        """Person who wants it ended; None if nobody does."""
        return self._cancelled.read_text() if self._cancelled.exists() else None

    def cancel(self, who: str) -> None:
        """End it now where no process does it; else that process ends it soon."""
        replace_file(self._cancelled, who.encode())
        with self.claim(alone=False) as mine:
            if mine and self.outcome is None:
                self.fail(cancel_reason(who), who)

    def fail(self, reason: str, source: str) -> None:
        """End a run that no trainer could finish."""
        request = self.resolved or self.request
        self.outcome = AdapterTrained(
            request_id=request.request_id,
            agent_id=request.agent_id,
            status="failed",
            metadata=Metadata(timestamp=datetime.now(UTC), source=source),
            parent_version=request.parent_version,
            reason=reason,
        )

    def remove(self) -> None:
        """Remove it as if it had never been asked for."""
        shutil.rmtree(self.path)


class RunStore:
    """All runs of all agents."""

    def __init__(self, adapters_dir: Path) -> None:
        self._adapters_dir = adapters_dir

    def folder(self, agent_id: str, request_id: str) -> RunFolder:
        return RunFolder(self._adapters_dir / agent_id / JOBS / _folder_name(request_id))

    def record(self, request: TrainRequest) -> RunFolder:
        """Write the request to disk. One recorded before stays as it was; if it has ended, that is announced again."""
        folder = self.folder(request.agent_id, request.request_id)
        if (folder.path / "request.json").exists():
            folder.announced = False
            return folder
        folder.path.mkdir(parents=True, exist_ok=True)
        replace_file(folder.path / "request.json", request.encode())
        sync_folder(folder.path.parent)
        sync_folder(folder.path.parent.parent)
        return folder

    def folders(self) -> list[RunFolder]:
        return [run for jobs in sorted(self._adapters_dir.glob(f"*/{JOBS}")) for run in self._in(jobs)]

    def views(self, agent_id: str | None = None) -> list[tuple[RunView, RunFolder]]:
        """Return all runs, or one agent's, the newest last. A damaged record is left out."""
        found: list[tuple[RunView, RunFolder]] = []
        for folder in self.folders():
            with suppress(FileNotFoundError, DecodeError):
                found.append((folder.run.view, folder))
        return sorted(
            (one for one in found if agent_id in (None, one[0].agent_id)), key=lambda one: place_of_run(one[0])
        )

    def at_work(self, agent_id: str) -> RunFolder | None:
        """Return the agent's run that a process does."""
        jobs = self._adapters_dir / agent_id / JOBS
        runs = self._in(jobs) if jobs.is_dir() else []
        return next((folder for folder in reversed(runs) if folder.outcome is None and folder.is_taken), None)

    def find(self, request_id: str) -> list[RunFolder]:
        """Return the runs of that id: more than one where several agents have it."""
        found = self._adapters_dir.glob(f"*/{JOBS}/{_folder_name(request_id)}")
        return [RunFolder(path) for path in sorted(found) if (path / "request.json").exists()]

    def unfinished_runs(self) -> list[RunFolder]:
        """Return the runs without an outcome, in the order they were asked for."""
        return [folder for folder in self.folders() if folder.outcome is None]

    def unannounced_runs(self) -> list[RunFolder]:
        return [folder for folder in self.folders() if folder.outcome is not None and not folder.announced]

    def forget_old(self, keep: int) -> None:
        """Remove the records of announced runs but the newest `keep` of each agent."""
        for agent in {folder.path.parent for folder in self.folders()}:
            done = [folder for folder in self._in(agent) if folder.announced]
            for folder in done[: max(0, len(done) - keep)]:
                shutil.rmtree(folder.path)

    def _in(self, folder: Path) -> list[RunFolder]:
        asked: list[tuple[int, Path]] = []
        for path in folder.iterdir():
            with suppress(FileNotFoundError):  # a kill left only a folder, or its trainer is just removing it
                asked.append(((path / "request.json").stat().st_mtime_ns, path))
        return [RunFolder(path) for _, path in sorted(asked)]


def cancel_reason(who: str) -> str:
    """Return the reason that a cancelled run ends with."""
    return f"cancelled by {who}"


def _folder_name(request_id: str) -> str:
    """Return the request's id where it can be a folder's name, else a sum of it."""
    return request_id if PLAIN.fullmatch(request_id) else hashlib.sha256(request_id.encode()).hexdigest()
