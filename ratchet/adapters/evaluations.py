"""Evaluations beside an agent's versions: which inputs are kept for them, and what came of them. Files, no more.

`adapters/<agent>/evaluations/sets/<sum>.json` registers a set: from then on the trainer leaves out every sample with
one of its inputs. `<name>.json` is an evaluation, `<name>.svg` its picture: they lie beside the versions' folders, for
a version itself never changes.

Two inputs are the same where they are the same messages, whatever their white space, and a text the same as a chat of
that one message. One that is reworded is another: no sum finds it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from ratchet.files.append_file import disk_errors
from ratchet.files.atomic_file import replace_file
from ratchet.service.errors import AdapterError
from schemas.api.experiments import Standing
from schemas.messages.base import DecodeError
from schemas.messages.task import Prompt
from schemas.records.evaluation import EvaluatedVersion, Evaluation, Interval, RegisteredSet

Board = tuple[str, str, str]
"""An agent, the sum of a set, and a scorer: scores of two scorers are not compared."""


def leaderboard(evaluations: Iterable[Evaluation]) -> list[Standing]:
    """Return the standings, the set that was evaluated last first."""
    boards: dict[Board, dict[str, tuple[Evaluation, EvaluatedVersion, Interval]]] = {}
    for one in sorted(evaluations, key=lambda each: each.at):
        board = boards.pop((one.agent_id, one.set.sha256, one.scorer), {})
        boards[one.agent_id, one.set.sha256, one.scorer] = board  # the newest last
        for of, score in _scores(one):
            board[of.contestant] = (one, of, score)
    return [standing for board in reversed(boards.values()) for standing in _rank_all(list(board.values()))]


def _scores(evaluation: Evaluation) -> Iterator[tuple[EvaluatedVersion, Interval]]:
    """Yield the mean score of one answer, of each contestant that has one: of one alone, what share of its answers was
    right."""
    compared = {one.contestant: one.results[0].single for one in evaluation.results}
    for number, of in enumerate(evaluation.versions):
        if of.contestant in compared:
            yield of, compared[of.contestant].after
        elif not number and compared:
            yield of, next(iter(compared.values())).before
        elif of.solved and of.solved[0].pass_at:
            yield of, of.solved[0].pass_at[0].rate


def _rank_all(found: list[tuple[Evaluation, EvaluatedVersion, Interval]]) -> list[Standing]:
    ranks = [1 + sum(other.low > score.high for *_, other in found) for *_, score in found]
    standings = [
        Standing(
            agent_id=evaluation.agent_id,
            set=evaluation.set,
            scorer=evaluation.scorer,
            version=of.version,
            program=of.program,
            rank=rank,
            is_tied=ranks.count(rank) > 1,
            score=score,
            cost_per_solved=of.solved[0].cost_per_solved if of.solved else None,
            tokens_per_solved=of.solved[0].tokens_per_solved if of.solved else None,
            unanswered=of.unanswered,
            evaluation=evaluation.name,
            at=evaluation.at,
        )
        for (evaluation, of, score), rank in zip(found, ranks, strict=True)
    ]
    return sorted(standings, key=lambda one: (one.rank, -one.score.mean, one.program or "", one.version))


FOLDER = "evaluations"
SETS = "sets"


def input_sha256(prompt: Prompt) -> str:
    """Return the hash of an input."""
    messages = (
        [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [one.model_dump() for one in prompt]
    )
    return _sum_of(messages)


def logged_input_sha256(raw: bytes) -> str | None:
    """The same, of the field `input` of a line; None where it is none."""
    with suppress(msgspec.DecodeError, KeyError, TypeError, AttributeError):
        found = msgspec.json.decode(raw)
        return _sum_of([{"role": "user", "content": found}] if isinstance(found, str) else found)
    return None


def _sum_of(messages: list[dict[str, Any]]) -> str:
    plain = [[one["role"], " ".join(one["content"].split())] for one in messages]
    return hashlib.sha256(json.dumps(plain, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


def set_sha256(inputs: Iterable[str]) -> str:
    return hashlib.sha256("".join(sorted(inputs)).encode()).hexdigest()


def evaluations_folder(adapters_dir: Path, agent_id: str) -> Path:
    return adapters_dir / agent_id / FOLDER


def register_set(adapters_dir: Path, agent_id: str, registered: RegisteredSet) -> RegisteredSet:
    """Register a set, on disk when this returns. A known one keeps its date, and a damaged one is written again.

    Raises StorageUnavailable where what lies there can't be read now.
    """
    folder = evaluations_folder(adapters_dir, agent_id) / SETS
    path = folder / f"{registered.set.sha256[:16]}.json"
    with suppress(AdapterError):
        if path.exists():
            return _read_registered_set(path)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(path, registered.encode())
    return registered


def registered_sets(adapters_dir: Path, agent_id: str) -> list[RegisteredSet]:
    """Raises AdapterError for a damaged one: what must be left out is then not known. And StorageUnavailable for a disk
    that can't be read now."""
    folder = evaluations_folder(adapters_dir, agent_id) / SETS
    return [_read_registered_set(path) for path in _records(folder)]


def _records(folder: Path) -> list[Path]:
    """Return the records by name; none where there is no folder.

    Raises StorageUnavailable: an unreadable one is not empty.
    """
    with disk_errors(folder), suppress(FileNotFoundError):
        return sorted(path for path in folder.iterdir() if path.suffix == ".json")
    return []


def _read_registered_set(path: Path) -> RegisteredSet:
    try:
        with disk_errors(path):
            return RegisteredSet.decode(path.read_bytes())
    except (DecodeError, OSError) as error:
        raise AdapterError(
            f"{path} can't be read ({error}): restore it, or run ratchet eval on its set again"
        ) from None


def held_out_inputs(adapters_dir: Path, agent_id: str) -> frozenset[str]:
    """The sums of all inputs that are kept for evaluation. Raises as `registered_sets`."""
    return frozenset(one for registered in registered_sets(adapters_dir, agent_id) for one in registered.inputs)


def write_inputs(path: Path, inputs: Iterable[str], at: datetime) -> None:
    """`at`: when these were all that were registered."""
    replace_file(path, json.dumps({"at": at.isoformat(), "inputs": sorted(inputs)}).encode())


def read_inputs(path: Path) -> frozenset[str]:
    """None of them where there is no file: a run that was begun by an older trainer. Raises StorageUnavailable."""
    found = _inputs_file(path)
    return frozenset(found["inputs"] if isinstance(found, dict) else found)


def inputs_written_at(path: Path) -> datetime | None:
    """None where an older trainer wrote it, or none did. Raises StorageUnavailable."""
    found = _inputs_file(path)
    return datetime.fromisoformat(found["at"]) if isinstance(found, dict) else None


def _inputs_file(path: Path) -> Any:
    """A list, as an older trainer wrote it, has no date."""
    with disk_errors(path):
        return json.loads(path.read_bytes()) if path.exists() else []


def write_evaluation(adapters_dir: Path, evaluation: Evaluation, picture: str) -> Path:
    """The file it is in; the picture lies beside it."""
    folder = evaluations_folder(adapters_dir, evaluation.agent_id)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{evaluation.name}.json"
    replace_file(path.with_suffix(".svg"), picture.encode())
    replace_file(path, evaluation.encode())
    return path


def evaluations_of(adapters_dir: Path, agent_id: str, version: str) -> list[Evaluation]:
    """Those it took part in by itself, the newest last; not what programs did with it. Raises as `all_evaluations`."""
    found = all_evaluations(adapters_dir, agent_id)
    return [one for one in found if version in {part.version for part in one.versions if part.program is None}]


def all_evaluations(adapters_dir: Path, agent_id: str) -> list[Evaluation]:
    """An agent's evaluations, the newest last; a damaged one is left out. Raises StorageUnavailable."""
    found = []
    for path in _records(evaluations_folder(adapters_dir, agent_id)):
        with suppress(DecodeError, OSError), disk_errors(path):
            found.append(Evaluation.decode(path.read_bytes()))
    return sorted(found, key=lambda one: one.at)
