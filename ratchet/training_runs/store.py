"""Training runs on disk: what was asked, how far it got, how it ended. Written before the broker's message is acked.

`<adapters>/<agent>/.jobs/<request>/` holds request.json, and later resolved.json (the request with all choices made),
checkpoints/, progress.json (how it stands, for whoever looks), outcome.json, and the mark `announced`. Whoever runs a
job holds the folder's lock, which dies with its process: an unfinished job whose lock is free is to be taken up again.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from ratchet.files.atomic_file import replace_file, sync_folder
from ratchet.files.folder_lock import FolderLock
from schemas.messages.adapter_trained import AdapterTrained
from schemas.messages.train_request import TrainRequest

JOBS = ".jobs"
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Job:
    """One run's folder. Blocks on the disk throughout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.progress = folder / "progress.json"
        self._request = folder / "request.json"
        self._resolved = folder / "resolved.json"
        self._outcome = folder / "outcome.json"
        self._announced = folder / "announced"
        self._attempts = folder / "attempts"

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

    def lock(self) -> FolderLock:
        return FolderLock(self.folder)

    def remove(self) -> None:
        """As if it had never been asked for."""
        shutil.rmtree(self.folder)


class Jobs:
    """All runs of all agents."""

    def __init__(self, adapters_dir: Path) -> None:
        self._adapters_dir = adapters_dir

    def job(self, agent_id: str, request_id: str) -> Job:
        return Job(self._adapters_dir / agent_id / JOBS / _folder_name(request_id))

    def record(self, request: TrainRequest) -> Job:
        """On disk when this returns. A request recorded before stays as it was; if it has ended, it is told again."""
        job = self.job(request.agent_id, request.request_id)
        if (job.folder / "request.json").exists():
            job.announced = False
            return job
        job.folder.mkdir(parents=True, exist_ok=True)
        replace_file(job.folder / "request.json", request.encode())
        sync_folder(job.folder.parent)
        sync_folder(job.folder.parent.parent)
        return job

    def every(self) -> list[Job]:
        return list(self._all())

    def named(self, request_id: str) -> list[Job]:
        """Those of that id; of more than one agent if two were asked under the same."""
        found = self._adapters_dir.glob(f"*/{JOBS}/{_folder_name(request_id)}")
        return [Job(folder) for folder in sorted(found) if (folder / "request.json").exists()]

    def unfinished(self) -> list[Job]:
        """In the order they were asked for."""
        return [job for job in self._all() if job.outcome is None]

    def unannounced(self) -> list[Job]:
        return [job for job in self._all() if job.outcome is not None and not job.announced]

    def forget_old(self, keep: int) -> None:
        """Remove the records of finished, announced runs but the newest `keep` of each agent."""
        for agent in {job.folder.parent for job in self._all()}:
            done = [job for job in self._in(agent) if job.announced]
            for job in done[: max(0, len(done) - keep)]:
                shutil.rmtree(job.folder)

    def _all(self) -> Iterator[Job]:
        for folder in sorted(self._adapters_dir.glob(f"*/{JOBS}")):
            yield from self._in(folder)

    def _in(self, folder: Path) -> list[Job]:
        asked: list[tuple[int, Path]] = []
        for path in folder.iterdir():
            with suppress(FileNotFoundError):  # a kill left only a folder, or its trainer is just removing it
                asked.append(((path / "request.json").stat().st_mtime_ns, path))
        return [Job(path) for _, path in sorted(asked)]


def _folder_name(request_id: str) -> str:
    """The request's id where it can be a folder's name, else a sum of it."""
    return request_id if PLAIN.fullmatch(request_id) else hashlib.sha256(request_id.encode()).hexdigest()
