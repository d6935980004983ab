"""Do the logs still say what was written to them, and what each version learned from? By seals and cards; reads all.

What can't be checked is said too: what is older than the seals, and what was removed to keep the logs within bounds.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import msgspec

from ratchet.adapters.evaluations import input_sha256
from ratchet.adapters.manifest import read_card
from ratchet.files.append_file import disk_errors
from ratchet.logs.names import FEEDBACK, INTERACTIONS, SEALS
from ratchet.logs.reader import Line, LogReader, end_of_log
from ratchet.logs.seals import NOTHING, SealBook, extend_chain, is_tombstone, read_seals
from ratchet.logs.segments import Position, read_start_offsets, sealed_segments
from ratchet.service.errors import AdapterError, JournalError
from schemas.messages.base import DecodeError
from schemas.messages.task import Prompt, Task
from schemas.records.adapter_card import DataRange
from schemas.records.registry import Registry

GOLDEN, ANCHORS = "golden.jsonl", "anchors.jsonl"
WORD = re.compile(r"\w+")
LARGEST_KEY = 1 << 64


def asked_by_the_gate(adapters_dir: Path, agent_id: str) -> frozenset[str]:
    """The sums of the inputs of an agent's golden tasks and anchors.

    Raises AdapterError naming a file that can't be read, and StorageUnavailable.
    """
    home = adapters_dir / agent_id
    golden = (line for line in _lines(home / GOLDEN))
    anchors = (b64decode(json.loads(line)["task"]) for line in _lines(home / ANCHORS))
    try:
        return frozenset(input_sha256(Task.decode(task).input) for task in (*golden, *anchors))
    except (DecodeError, ValueError, KeyError) as error:
        raise AdapterError(f"the golden tasks or anchors in {home} can't be read: {error}; mend them") from error


def words_key(prompt: Prompt) -> int:
    """Return a number below LARGEST_KEY that is the same for prompts of the same words."""
    return _key_of(prompt if isinstance(prompt, str) else "\n".join(one.content for one in prompt))


@lru_cache(maxsize=1)
def logged_words_key(raw: bytes) -> int:
    """Return the same for the field `input` of a log line. The lines of a group follow each other with one prompt."""
    try:
        found = msgspec.json.decode(raw)
        return _key_of(found if isinstance(found, str) else "\n".join(one["content"] for one in found))
    except (msgspec.DecodeError, KeyError, TypeError):
        return _key_of(raw.decode("utf-8", "replace"))


def is_kept(key: int, share: float) -> bool:
    """True for a prompt in the share of all prompts that is kept for the replay."""
    return key < share * LARGEST_KEY


def _key_of(text: str) -> int:
    words = sorted(set(WORD.findall(text.casefold()))) or text.split()
    text = " ".join(words)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _lines(path: Path) -> list[bytes]:
    """None where there is no file."""
    with disk_errors(path):
        return [line for line in path.read_bytes().splitlines() if line.strip()] if path.exists() else []


ADVICE = "restore it from a copy; what was learned from it should be rolled back"


@dataclass(slots=True)
class LogCheck:
    """Sentences: what is wrong, and what could not be checked."""

    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lines: int = 0
    """That were held against a seal or a card."""


@dataclass(slots=True)
class Stretch:
    """Bytes `start` to before `end`, and what their lines should add up to: a chain, or a sum of older cards."""

    start: Position
    end: Position
    chain: str | None = None
    sha256: str = ""
    version: str | None = None
    """The one that learned from it; None: it is what was written."""
    _chain: bytes = NOTHING
    _sum: hashlib._Hash = field(default_factory=hashlib.sha256)
    _at: Position = -1

    def add(self, line: Line) -> None:
        if self.chain is not None:
            self._chain = extend_chain(self._chain, [line.data])
        else:
            self._sum.update(line.data + b"\n")
        if line.position == (self.start if self._at < 0 else self._at):
            self._at = line.end

    def overlaps(self, other: Stretch) -> bool:
        return self.start < other.end and other.start < self.end

    @property
    def holds(self) -> bool:
        found = self._sum.hexdigest() if self.chain is None else self._chain.hex()
        return self._at == self.end and found == (self.sha256 if self.chain is None else self.chain)


def check_logs(logs_dir: Path, adapters_dir: Path, registry: Registry) -> LogCheck:
    """Check the logs that teach."""
    check, learned = LogCheck(), list(_data_ranges(adapters_dir, registry))
    for log in (INTERACTIONS, FEEDBACK):
        ranges = [Stretch(one.start, one.end, one.chain, one.sha256, who) for who, one in learned if one.log == log]
        _LogReading(logs_dir, log, read_seals(adapters_dir / SEALS, log), ranges, check).run()
    return check


def _data_ranges(adapters_dir: Path, registry: Registry) -> Iterator[tuple[str, DataRange]]:
    """Yield each version with its data range, from the cards. A card that can't be read is a fault of its adapter."""
    for agent_id, agent in registry.agents.items():
        for version, entry in agent.versions.items():
            if entry.folder is None:
                continue
            try:
                card = read_card(adapters_dir / entry.folder)
            except AdapterError:
                continue
            yield from ((f"{agent_id} {version}", one) for one in card.data.ranges)


class _LogReading:
    """One pass over one log."""

    def __init__(self, folder: Path, log: str, book: SealBook, ranges: list[Stretch], check: LogCheck) -> None:
        self._folder = folder
        self._log = log
        self._book = book
        self._ranges = ranges
        self._check = check
        self._begin = read_start_offsets(folder).begin(log)

    def run(self) -> None:
        if self._book.fault:
            self._check.faults.append(f"{self._book.fault}. What follows it can't be checked by seals")
        written = [Stretch(one.start, one.end, one.chain) for one in self._book.seals if one.kind == "seal"]
        if (mark := self._book.mark) is not None and mark.start < mark.end:
            written.append(Stretch(mark.start, mark.end, mark.chain))
        end = end_of_log(self._folder, self._log)
        behind = max((one.end for one in written), default=end)
        if behind > end:
            older = f"was written up to {behind:,}: it is an older copy, or was cut off"
            self._check.notes.append(f"{self._log} ends at byte {end:,}, but {older}")
        kept = [one for one in written if one.end <= end and one.start >= self._begin]
        kept += [one for one in self._ranges if one.start >= self._begin]
        self._read(kept)
        self._say([one for one in kept if not one.holds])
        self._say_what_is_strange()
        self._say_what_is_unchecked([one for one in self._ranges if one.start < self._begin])

    def _read(self, stretches: Sequence[Stretch]) -> None:
        waiting = sorted(stretches, key=lambda one: one.start, reverse=True)
        now: list[Stretch] = []
        erased = 0
        try:
            for line in LogReader(self._folder, self._log, self._begin, on_bad=lambda bad: None).whole_lines():
                while waiting and waiting[-1].start <= line.position:
                    now.append(waiting.pop())
                now = [one for one in now if one.end > line.position]
                for one in now:
                    one.add(line)
                self._check.lines += bool(now)
                erased += is_tombstone(line.data)
                if not waiting and not now:
                    break
        except JournalError as error:
            self._check.faults.append(str(error))
        if erased:
            self._check.notes.append(f"{erased:,} lines of {self._log} were erased; their sums are as they were")

    def _say(self, wrong: Sequence[Stretch]) -> None:
        changed = [one for one in wrong if one.version is None]
        for one in changed:
            taught = _versions(two for two in self._ranges if two.overlaps(one))
            whom = f"; {taught} learned from it" if taught else ""
            self._check.faults.append(f"{self._where([one])} is not what the orchestrator wrote{whom}: {ADVICE}")
        for one in wrong:
            if one.version is not None:
                within = [two for two in changed if two.overlaps(one)] or [one]
                self._check.faults.append(
                    f"{one.version} learned from {self._where(within)}, which was changed since: {ADVICE}"
                )

    def _where(self, stretches: Iterable[Stretch]) -> str:
        return ", ".join(
            f"{self._segments(one.start, one.end)} (bytes {one.start:,} to {one.end:,})" for one in stretches
        )

    def _say_what_is_strange(self) -> None:
        for one in self._book.seals:
            where = f"{self._segments(one.start, one.end)}, bytes {one.start:,} to {one.end:,}"
            if one.kind == "appended":
                self._check.faults.append(f"{where}: not by the orchestrator, which had ended; it teaches nothing")
            elif one.kind == "cut":
                self._check.notes.append(f"{where}: not as once written: an older copy was restored, or it was cut off")
            elif one.kind == "found" and one.end > self._begin:
                self._check.notes.append(f"{where}: found after a kill, not noted as written; it teaches nothing")
        mark, path = self._book.mark, self._folder / f"{self._log}.jsonl"
        if mark is not None and mark.closed and path.exists() and path.stat().st_size > mark.end - mark.start:
            behind = f"{path.name}, from byte {mark.end:,} on"
            self._check.faults.append(f"{behind}: not by the orchestrator, which had ended; it will teach nothing")

    def _say_what_is_unchecked(self, removed: Sequence[Stretch]) -> None:
        older = max((one.end for one in self._book.seals if one.kind == "began"), default=self._begin)
        known = {(one.start, one.end) for one in self._book.seals if one.kind == "seal"}
        for one in sealed_segments(self._folder, self._log) if self._book.seals else ():
            if one.start >= max(older, self._begin) and (one.start, one.end) not in known:
                self._check.faults.append(f"{one.path.name} has no seal: it can't be said whether it was changed")
        if older > self._begin or (self._book.mark is None and end_of_log(self._folder, self._log)):
            self._check.notes.append(
                f"{self._log}: what was written before there were seals is checked only where a version learned from it"
            )
        if removed:
            whose = _versions(removed)
            self._check.notes.append(f"{self._log}: of what {whose} learned from the oldest was removed, by its bound")

    def _segments(self, start: Position, end: Position) -> str:
        """The files that hold these bytes."""
        sealed = sealed_segments(self._folder, self._log)
        names = [one.path.name for one in sealed if one.start < end and start < one.end]
        if not sealed or end > sealed[-1].end:
            names.append(f"{self._log}.jsonl")
        return ", ".join(names)


def _versions(stretches: Iterable[Stretch]) -> str:
    return ", ".join(sorted({one.version for one in stretches if one.version is not None}))
