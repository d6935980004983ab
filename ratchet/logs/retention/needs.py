"""The needs for parts of the logs: open tasks, the index, running experiments, trainings. Read from the disk alone.

So the orchestrator and `ratchet log prune` ask the same question in the same way. Nothing is changed here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ratchet.adapters.registry import RegistryStore
from ratchet.logs.names import INTERACTIONS, TASK_LOGS, source, task_index
from ratchet.logs.segments import Position, Segment
from ratchet.service.errors import JournalError
from schemas.messages.base import DecodeError
from schemas.messages.training import TrainRequest

TRAINING_NOTE = "training/"
FIRST_OPEN = "SELECT min(sequence) FROM tasks INDEXED BY open_tasks WHERE result IS NULL"


@dataclass(frozen=True, slots=True)
class Need:
    """A log is needed from a position on."""

    log: str
    position: Position
    why: str
    yields: bool = False
    """Given up where the logs would otherwise grow to twice their bound."""


@dataclass(frozen=True, slots=True)
class Needs:
    """`first_open`: number of the first task that is open, or whose user is not told yet; None where there is none."""

    first_open: int | None
    windows: tuple[Need, ...]

    def also(self, first_pending: int | None) -> Needs:
        """The same with a task that is closed and whose user is not told yet."""
        first = min((one for one in (self.first_open, first_pending) if one is not None), default=None)
        return replace(self, first_open=first)

    def against(self, segment: Segment, *, pressed: bool = False) -> str | None:
        """Return the first that needs bytes of this segment, or None. With `pressed`, ignore those that may be
        skipped."""
        for need in self.windows:
            if need.log == segment.name and need.position < segment.end and not (need.yields and pressed):
                return need.why
        return None


class _TrainingNote(msgspec.Struct):
    """The window that the orchestrator's `TrainingState` tells."""

    since: Position = 0
    asked_since: Position = 0
    pending: str | None = None


def needs(index_dir: Path, adapters_dir: Path, follower: int = 0) -> Needs:
    """Return the needs of now. Raises JournalError without a readable index, RegistryError.

    `follower`: number of a fleet that follows another's decisions. Experiments know its logs by that number, and
    trainings read the logs of the other.
    """
    with _index(task_index(index_dir)) as index:
        first_open = index.execute(FIRST_OPEN).fetchone()[0]
        of_index = tuple(_of_index(index))
    of_jobs = () if follower else tuple(_of_jobs(adapters_dir))
    return Needs(first_open, (*of_index, *_of_experiments(adapters_dir, follower), *of_jobs))


class _index:  # noqa: N801  # reads as a function
    """The index as last committed, for reading only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> sqlite3.Connection:
        open_for_writing = self._path.with_name(f"{self._path.name}-wal").exists()
        how = "mode=ro" if open_for_writing else "immutable=1"
        try:
            self._connection = sqlite3.connect(f"{self._path.absolute().as_uri()}?{how}", uri=True)
            self._connection.execute("SELECT 1 FROM tasks LIMIT 1")
        except sqlite3.Error as error:
            raise JournalError(
                f"{self._path} can't be read ({error}), so it is not known which tasks are open: the orchestrator "
                f"makes it when it starts"
            ) from None
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _of_index(index: sqlite3.Connection) -> Iterator[Need]:
    current = dict(index.execute("SELECT log, position FROM positions").fetchall())
    for log in TASK_LOGS:
        yield Need(log, current.get(log, 0), "the index has not read it yet, or a user has not been told of it")
    for name, note in index.execute("SELECT name, note FROM notes WHERE name LIKE ?", (f"{TRAINING_NOTE}%",)):
        agent, state = name.removeprefix(TRAINING_NOTE), msgspec.json.decode(note, type=_TrainingNote)
        if state.pending is not None:
            yield Need(INTERACTIONS, state.asked_since, f"training {state.pending}, which is asked for, reads it")
        yield Need(INTERACTIONS, state.since, f"the next training of agent {agent} will read it", yields=True)


def _of_experiments(adapters_dir: Path, follower: int) -> Iterator[Need]:
    for agent in RegistryStore(adapters_dir).read().agents.values():
        for experiment in agent.running:
            began = experiment.parameters.get("positions")
            for log in TASK_LOGS:
                name = source(follower, log) if follower else log
                position = began.get(name, 0) if isinstance(began, dict) else 0
                why = f"experiment {experiment.experiment_id} runs on it"
                yield Need(log, position if isinstance(position, int) else 0, why)


def _of_jobs(adapters_dir: Path) -> Iterator[Need]:
    """Yield the needs of runs that the trainer has on disk without an outcome (`ratchet/runs/store.py` says what lies
    where)."""
    for folder in adapters_dir.glob("*/.jobs/*"):
        if not (folder / "outcome.json").exists():
            for name in ("resolved.json", "request.json"):
                if (request := _request(folder / name)) is not None:
                    yield Need(INTERACTIONS, request.since, f"training {request.request_id} is under way")
                    break


def _request(path: Path) -> TrainRequest | None:
    try:
        return TrainRequest.decode(path.read_bytes())
    except (FileNotFoundError, DecodeError):
        return None
