"""Training runs on disk: what was asked, how far it got, how it ended. Written before the broker's message is acked.

`<adapters>/<agent>/.jobs/<request>/` holds request.json, and later resolved.json (the request with all choices made),
checkpoints/, progress.json (how it goes), outcome.json, and the marks `announced` and `cancelled`. Whoever is at it
holds the folder's lock and the agent's (`<adapters>/<agent>/.training.lock`), so that of an agent one run is at work at
a time. Both die with their process: an unfinished run whose lock is free is to be taken up again.
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
from ratchet.training_runs.progress import read_progress
from ratchet.training_runs.run import TrainingRun
from schemas.messages.adapter_trained import AdapterTrained
from schemas.messages.base import Metadata
from schemas.messages.train_request import TrainRequest

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
        """The sums of inputs this run may not learn from, as they were when it was begun."""
        self.untaught = path / "untaught_inputs.json"
        """The sums of inputs whose demonstrations do not teach in this run, as they were when it was begun."""
        self._request = path / "request.json"
        self._resolved = path / "resolved.json"
        self._outcome = path / "outcome.json"
        self._announced = path / "announced"
        self._cancelled = path / "cancelled"
        self._attempts = path / "attempts"

    @property
    def run(self) -> TrainingRun:
        """As it stands. Raises FileNotFoundError for one that is just being removed, DecodeError for a damaged one."""
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
        """As it was asked. Raises FileNotFoundError where a kill left only a folder."""
        return TrainRequest.decode(self._request.read_bytes())

    @property
    def asked_at(self) -> datetime:
        """When the request was recorded. Raises FileNotFoundError."""
        return datetime.fromtimestamp(self._request.stat().st_mtime, UTC)

    @property
    def resolved(self) -> TrainRequest | None:
        """With parent, window and hyperparameters fixed: what a run that is taken up again must go on with."""
        return TrainRequest.decode(self._resolved.read_bytes()) if self._resolved.exists() else None

    @resolved.setter
    def resolved(self, request: TrainRequest) -> None:
        replace_file(self._resolved, request.encode())

    @property
    def outcome(self) -> AdapterTrained | None:
        return AdapterTrained.decode(self._outcome.read_bytes()) if self._outcome.exists() else None

    @outcome.setter
    def outcome(self, trained: AdapterTrained) -> None:
        """The end of the run: what is only needed to go on goes away."""
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
        """How often it was begun since it last came further."""
        return self._begun()[0]

    def begin(self, checkpoint: str) -> None:
        """A process begins it, at that checkpoint: at another one than the last time, it has come further."""
        count, before = self._begun()
        self._set_begun(count + 1 if checkpoint == before else 1, checkpoint)

    def withdraw(self) -> None:
        """The last attempt was cut short in an orderly way and does not count."""
        count, checkpoint = self._begun()
        self._set_begun(max(0, count - 1), checkpoint)

    def _begun(self) -> tuple[int, str]:
        count, _, checkpoint = self._attempts.read_text().partition(" ") if self._attempts.exists() else ("0", "", "")
        return int(count), checkpoint

    def _set_begun(self, count: int, checkpoint: str) -> None:
        replace_file(self._attempts, f"{count} {checkpoint}".encode())

    @contextmanager
    def claimed(self, *, alone: bool = True) -> Iterator[bool]:
        """True: in the block nobody else is at it, nor (`alone`) at another run of its agent. False: somebody is."""
        own, agents = FolderLock(self.path), FolderLock(self.path.parent.parent, TRAINING_LOCK)
        try:
            yield (not alone or agents.try_acquire()) and own.try_acquire()
        finally:
            own.release()
            agents.release()

    @property
    def free(self) -> bool:
        """Nobody is at it, nor at another run of its agent."""
        with self.claimed() as free:
            return free

    @property
    def taken(self) -> bool:
        """Somebody is at it."""
        lock = FolderLock(self.path)
        free = lock.try_acquire(sign=False)
        lock.release()
        return not free

    @property
    def holder(self) -> str:
        """Who is at it, or was last, as `pid 123 on host`."""
        return FolderLock(self.path).holder()

    @property
    def cancelled_by(self) -> str | None:
        """Who wants it ended, if anybody does."""
        return self._cancelled.read_text() if self._cancelled.exists() else None

    def cancel(self, who: str) -> None:
        """Where nobody is at it, it has ended when this returns; else whoever is at it ends it soon."""
        replace_file(self._cancelled, who.encode())
        with self.claimed(alone=False) as mine:
            if mine and self.outcome is None:
                self.fail(cancelled(who), who)

    def fail(self, reason: str, source: str) -> None:
        """The end of a run that no trainer could bring to one."""
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
        """As if it had never been asked for."""
        shutil.rmtree(self.path)


class RunStore:
    """All runs of all agents."""

    def __init__(self, adapters_dir: Path) -> None:
        self._adapters_dir = adapters_dir

    def folder(self, agent_id: str, request_id: str) -> RunFolder:
        return RunFolder(self._adapters_dir / agent_id / JOBS / _folder_name(request_id))

    def record(self, request: TrainRequest) -> RunFolder:
        """On disk when this returns. One recorded before stays as it was; if it has ended, that is announced again."""
        folder = self.folder(request.agent_id, request.request_id)
        if (folder.path / "request.json").exists():
            folder.announced = False
            return folder
        folder.path.mkdir(parents=True, exist_ok=True)
        replace_file(folder.path / "request.json", request.encode())
        sync_folder(folder.path.parent)
        sync_folder(folder.path.parent.parent)
        return folder

    def every(self) -> list[RunFolder]:
        return list(self._all())

    def at_work(self, agent_id: str) -> RunFolder | None:
        """The agent's run that somebody is at."""
        jobs = self._adapters_dir / agent_id / JOBS
        runs = self._in(jobs) if jobs.is_dir() else []
        return next((folder for folder in reversed(runs) if folder.outcome is None and folder.taken), None)

    def named(self, request_id: str) -> list[RunFolder]:
        """Those of that id; of more than one agent if two were asked under the same."""
        found = self._adapters_dir.glob(f"*/{JOBS}/{_folder_name(request_id)}")
        return [RunFolder(path) for path in sorted(found) if (path / "request.json").exists()]

    def unfinished(self) -> list[RunFolder]:
        """In the order they were asked for."""
        return [folder for folder in self._all() if folder.outcome is None]

    def unannounced(self) -> list[RunFolder]:
        return [folder for folder in self._all() if folder.outcome is not None and not folder.announced]

    def forget_old(self, keep: int) -> None:
        """Remove the records of finished, announced runs but the newest `keep` of each agent."""
        for agent in {folder.path.parent for folder in self._all()}:
            done = [folder for folder in self._in(agent) if folder.announced]
            for folder in done[: max(0, len(done) - keep)]:
                shutil.rmtree(folder.path)

    def _all(self) -> Iterator[RunFolder]:
        for folder in sorted(self._adapters_dir.glob(f"*/{JOBS}")):
            yield from self._in(folder)

    def _in(self, folder: Path) -> list[RunFolder]:
        asked: list[tuple[int, Path]] = []
        for path in folder.iterdir():
            with suppress(FileNotFoundError):  # a kill left only a folder, or its trainer is just removing it
                asked.append(((path / "request.json").stat().st_mtime_ns, path))
        return [RunFolder(path) for _, path in sorted(asked)]


def cancelled(who: str) -> str:
    """The reason such a run has."""
    return f"cancelled by {who}"


def _folder_name(request_id: str) -> str:
    """The request's id where it can be a folder's name, else a sum of it."""
    return request_id if PLAIN.fullmatch(request_id) else hashlib.sha256(request_id.encode()).hexdigest()
