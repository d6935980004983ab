"""An evaluation set: a file of tasks, a line each, which no training may see. And whether one has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from ratchet.adapters.evaluations import input_sha256, logged_input_sha256, set_sha256
from ratchet.adapters.manifest import read_card
from ratchet.logs.names import INTERACTIONS, is_own
from ratchet.logs.reader import LogReader, decode
from ratchet.logs.rows import ArmRow
from ratchet.logs.segments import read_start_offsets
from ratchet.service.errors import AdapterError
from schemas.messages.task import Task
from schemas.messages.work import BASE_VERSION
from schemas.records.adapter_card import AdapterCard
from schemas.records.evaluation import EvaluationSet, RegisteredSet
from schemas.records.registry import AgentAdapters
from services.cli.eval.suites import suite_tasks, suites
from services.cli.harbor import read_tasks as read_harbor
from services.cli.submit import read_tasks
from services.cli.terminal import UsageError, read_text

HARBOR = "harbor:"
EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SetTask:
    task: Task
    family: str | None
    sha256: str
    """Digest of its input."""
    language: str | None = None
    level: str | None = None


@dataclass(frozen=True, slots=True)
class TaskSet:
    """`twice`: lines that ask what an earlier one asks, and are left out."""

    name: str
    tasks: tuple[SetTask, ...]
    twice: int = 0

    @property
    def record(self) -> EvaluationSet:
        return EvaluationSet(name=self.name, sha256=set_sha256(one.sha256 for one in self.tasks), tasks=len(self.tasks))

    def registration(self, at: datetime) -> RegisteredSet:
        return RegisteredSet(set=self.record, registered_at=at, inputs=tuple(sorted(one.sha256 for one in self.tasks)))


def named_set(name: str) -> TaskSet:
    """Read a set that comes with Ratchet, Harbor's task folders, or a file. Raises UsageError, naming the line."""
    if name.startswith(HARBOR):
        folder = Path(name.removeprefix(HARBOR))
        return _parse_set(folder.name, [json.dumps(one.line) for one in read_harbor(folder)])
    if name in suites() and not Path(name).exists():
        return _parse_set(name, [json.dumps(one) for one in suite_tasks(name)])
    return read_set(Path(name))


def read_set(file: Path) -> TaskSet:
    """A line is a Task as JSON, of which only `input` must be there, with a `family`, a `language` and a `level` if it
    has them; or a text.

    Raises UsageError, naming the line.
    """
    return _parse_set(file.name, read_text(file).split("\n"))


def _parse_set(name: str, text: Sequence[str]) -> TaskSet:
    lines, found = [line for line in text if line.strip()], dict[str, SetTask]()
    for line, task in zip(lines, read_tasks(text, {}), strict=True):  # which names lines as an editor does
        sha256 = input_sha256(task.input)
        about = _parse_labels(line)
        family, language = about["family"] or task.task_type, about["language"] or _language_of_cases(task)
        found.setdefault(sha256, SetTask(task, family, sha256, language, about["level"]))
    if not found:
        raise UsageError(f'{name} holds no task. A line is one, such as {{"input": "sort: gbaec"}}')
    return TaskSet(name, tuple(found.values()), len(lines) - len(found))


def _parse_labels(line: str) -> dict[str, str | None]:
    """Return what a line says of its task beside the Task's own fields."""
    read = json.loads(line)
    given = read if isinstance(read, dict) else {}
    return {name: None if given.get(name) is None else str(given[name]) for name in ("family", "language", "level")}


def _language_of_cases(task: Task) -> str | None:
    """The language that hidden cases name; None of other criteria."""
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        return str(json.loads(task.criteria or "")["tests"].get("language", "python"))
    return None


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes of the log of interactions that a training read, and when it fixed what it leaves out for evaluations."""

    start: int
    end: int
    began: datetime


@dataclass(slots=True)
class Leaks:
    """The leaks of one version. `inputs`: sums of those that a training of it, or of one it was made from, may have
    seen."""

    inputs: set[str] = field(default_factory=set)
    unchecked: int = 0
    """Bytes of its windows that are no longer in the log."""


class LoggedInputRow(msgspec.Struct):
    agent_id: str = ""
    input: msgspec.Raw = msgspec.Raw()
    arm: ArmRow = msgspec.field(default_factory=ArmRow)


def windows_of(adapters_dir: Path, adapters: AgentAdapters, agent_id: str, version: str) -> Iterator[Window]:
    """Yield the windows of its trainings, back to the base model. Raises AdapterError where a card is gone."""
    seen: set[str] = set()
    while version != BASE_VERSION and version not in seen:
        seen.add(version)
        entry = adapters.versions.get(version)
        if entry is None or not entry.folder:
            raise AdapterError(f"the card of {version} is gone, so what it was trained on can't be known")
        card = read_card(adapters_dir / agent_id / version)
        yield from (Window(one.start, one.end, _began(card)) for one in card.data.ranges if one.log == INTERACTIONS)
        version = card.parent


def _began(card: AdapterCard) -> datetime:
    """Return it for a card that does not say it: by the seconds that its training took. Where it has none of these, a
    foreign trainer made it, which is not known to leave anything out."""
    seconds = card.metrics.get("seconds")
    if card.held_out_at is not None:
        return card.held_out_at
    return card.created - timedelta(seconds=seconds) if isinstance(seconds, int | float) else EVER


def find_leaks(
    logs_dir: Path, agent_id: str, windows: Mapping[str, Sequence[Window]], registered: Mapping[str, datetime]
) -> dict[str, Leaks]:
    """Find the leaks by version. `registered`: since when each input is kept for evaluation; a training that began
    later left it out.

    One pass over the log. Raises JournalError where a part of it is missing.
    """
    found = {version: Leaks() for version in windows}
    every = [one for some in windows.values() for one in some]
    if not every:
        return found
    begin = read_start_offsets(logs_dir).begin(INTERACTIONS)
    for version, some in windows.items():
        found[version].unchecked = sum(max(0, min(one.end, begin) - one.start) for one in some)
    decoder, last = msgspec.json.Decoder(LoggedInputRow), max(one.end for one in every)
    reader = LogReader(logs_dir, INTERACTIONS, max(begin, min(one.start for one in every)), on_bad=lambda _: None)
    for line in reader.whole_lines():
        if line.position >= last:
            break
        try:
            row = decode(line.data, decoder)
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
        if row.agent_id != agent_id or is_own(row.arm.experiment_id):
            continue
        sha256 = logged_input_sha256(bytes(row.input))
        if sha256 is None or sha256 not in registered:
            continue
        for version, some in windows.items():
            if any(one.start <= line.position < one.end and one.began < registered[sha256] for one in some):
                found[version].inputs.add(sha256)
    return found


def since_when(sets: Sequence[RegisteredSet], inputs: Sequence[str]) -> dict[str, datetime]:
    """When each of these inputs was first registered."""
    wanted, first = set(inputs), dict[str, datetime]()
    for one in sorted(sets, key=lambda registered: registered.registered_at):
        for sha256 in wanted.intersection(one.inputs):
            first.setdefault(sha256, one.registered_at)
    return first | {sha256: datetime.now(UTC) for sha256 in wanted - first.keys()}
