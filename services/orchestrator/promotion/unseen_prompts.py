"""Prompts for a shadow replay, drawn from the log: what users asked, the primary answered and no training saw.

A training reads the log from one byte to another, which its adapter's card says, and leaves out the prompts that are
kept for the replay (RATCHET_REPLAY_SHARE). So new to a candidate is the log behind the newest such byte, of its own
training and of those that it was made from, and the kept prompts before it, each once. Not new is what `data.taught` of
their cards names, and what a training read in the same words, whatever their order, case and punctuation; such prompts
are counted. Left out as well: the fleet's own tasks; those without a score, which tell more of an outage than of the
primary; those scored by another scorer than the newest one; programs' rollouts; and of a session all tasks but one,
drawn at random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from ratchet.adapters.evaluations import logged_input_sha256
from ratchet.adapters.manifest import read_card
from ratchet.adapters.taught_logs import is_kept, logged_words_key
from ratchet.experiments.logged import NO_TYPE
from ratchet.experiments.shadow import judged_types
from ratchet.logs.best_answer import is_censored
from ratchet.logs.groups import Groups
from ratchet.logs.names import INTERACTIONS, REPLAY_TASKS, is_own
from ratchet.logs.reader import LogReader, start_of_newest
from ratchet.logs.rows import ArmRow, ScorerRow
from ratchet.service.errors import AdapterError
from schemas.messages.work import BASE_VERSION
from schemas.records.adapter_card import TAUGHT_DIGITS
from schemas.records.registry import AgentAdapters

MOST_BYTES = 256 * 1024**2
"""Bytes of the newest log that are read, about: whole segments."""
LEAST_OF_TYPE = 12
"""Prompts of one task type, where there are so many: a rarer type gets extra ones."""
MOST_EXTRA = 0.25
"""Share of the prompts that may be such extra ones."""


@dataclass(frozen=True, slots=True)
class LoggedPrompt:
    """A task in the log, by its id and its number."""

    task_id: str
    sequence: int
    task_type: str
    extra: bool = False
    """Drawn for its type alone, so it says nothing of all traffic."""


@dataclass(slots=True)
class UnseenPrompts:
    """The prompts there are to draw from. `judged`: numbers of the prompts that an earlier candidate was asked."""

    found: list[LoggedPrompt] = field(default_factory=list)
    judged: set[int] = field(default_factory=set)
    taught: int = 0
    """Logged tasks that were left out because a training was taught their prompt, or read the same words."""

    def draw(self, most: int, random: Random) -> tuple[list[LoggedPrompt], int]:
        """Return at most so many, in random order, and how many of them have judged an earlier candidate.

        Those are drawn only where there are no others.
        """
        fresh = [one for one in self.found if one.sequence not in self.judged]
        pool = random.sample(fresh or self.found, len(fresh or self.found))
        extra = _extra(pool, most)
        main = [one for one in pool if one not in extra][: most - len(extra)]
        marked = [LoggedPrompt(one.task_id, one.sequence, one.task_type, extra=True) for one in extra]
        drawn = [*main, *marked]
        random.shuffle(drawn)
        return drawn, 0 if fresh else len(drawn)

    @staticmethod
    def types_of(drawn: Sequence[LoggedPrompt]) -> tuple[str, ...]:
        return judged_types(Counter(one.task_type for one in drawn), LEAST_OF_TYPE)


def _extra(pool: Sequence[LoggedPrompt], most: int) -> list[LoggedPrompt]:
    """Return, for each type that is rare among those that are drawn anyway, the ones it lacks, from behind the first
    `most`.
    """
    room = int(MOST_EXTRA * most)
    counts, extra = Counter(one.task_type for one in pool[: most - room]), list[LoggedPrompt]()
    for one in pool[most:]:
        if counts[one.task_type] < LEAST_OF_TYPE and len(extra) < room:
            counts[one.task_type] += 1
            extra.append(one)
    return extra


@dataclass(frozen=True, slots=True)
class Lessons:
    """The prompts that the trainings of a version, and of those that it was made from, read and were taught."""

    reads: tuple[tuple[int, float], ...] = ()
    """The byte of the log up to which each training read, and the share of the prompts that it left out."""
    inputs: frozenset[str] = frozenset()
    """The keys that `data.taught` of a card has."""

    @property
    def end(self) -> int:
        """Return the byte from which on nothing was read."""
        return max((end for end, _ in self.reads), default=0)

    def has_read(self, position: int, key: int) -> bool:
        """True if one of the trainings read this place of the log and did not leave out the prompt with this key."""
        return any(position < end and not is_kept(key, share) for end, share in self.reads)

    @classmethod
    def of(cls, reads: Iterable[tuple[int, float]], inputs: Iterable[str]) -> Lessons:
        """Leave out the trainings that read less than another one, and left out as much or more of it."""
        binding: list[tuple[int, float]] = []
        for end, share in sorted(reads, key=lambda read: (read[1], -read[0])):
            if not binding or end > binding[-1][0]:
                binding.append((end, share))
        return cls(tuple(binding), frozenset(inputs))


def lessons_of(adapters_dir: Path, agent_id: str, adapters: AgentAdapters, version: str) -> Lessons:
    """Read the cards of a version and of those that it was made from.

    Where a folder is gone: what the primary answered came after the trainings of those that the primary was made from,
    so they need not be known. One that came after the primary may have read all that is known to be read.
    """
    reads, inputs, seen = list[tuple[int, float]](), set[str](), set[str]()
    before_primary = False
    while version != BASE_VERSION and version not in seen:
        seen.add(version)
        before_primary = before_primary or version == adapters.primary
        entry = adapters.versions.get(version)
        try:
            card = read_card(adapters_dir / agent_id / version)
        except AdapterError:
            version = (entry.parent if entry else None) or BASE_VERSION
            if not before_primary:
                reads.append((max((end for end, _ in reads), default=0), 0.0))
            continue
        kept = card.hyperparameters.get("replay_share", 0.0)
        share = float(kept) if isinstance(kept, int | float) else 0.0
        reads += [(part.end, share) for part in card.data.ranges if part.log == INTERACTIONS]
        inputs.update(card.data.taught)
        version = card.parent
    return Lessons.of(reads, inputs)


class PromptRow(msgspec.Struct):
    task_id: str
    agent_id: str = ""
    adapter_version: str = ""
    arm: ArmRow = msgspec.field(default_factory=ArmRow)
    sample: int | None = None
    group_size: int = 0
    score: float | None = None
    scorer: ScorerRow | None = None
    select: str | None = None
    program: str | None = None
    task_type: str | None = None
    session_id: str | None = None
    kept_apart: bool | str = False
    input: msgspec.Raw = msgspec.Raw()


def unseen_prompts(logs_dir: Path, agent_id: str, primary: str, lessons: Lessons, random: Random) -> UnseenPrompts:
    """`primary`: who answered them. Reads; blocks. Raises JournalError for a log with a part missing."""
    reading = _Reading(agent_id, primary, lessons, random)
    start = start_of_newest(logs_dir, INTERACTIONS, MOST_BYTES)
    for record in LogReader(logs_dir, INTERACTIONS, start, on_bad=lambda _: None).records(PromptRow):
        if record.value.agent_id == agent_id:
            reading.take(record.position, record.value)
    return reading.found


class _Reading:
    """One pass over the log."""

    def __init__(self, agent_id: str, primary: str, lessons: Lessons, random: Random) -> None:
        self._own = f"{REPLAY_TASKS}{agent_id}/"
        self._primary = primary
        self._lessons = lessons
        self._end = lessons.end
        self._random = random
        self._groups = Groups[str, PromptRow]()
        self._keys_read = set[int]()
        self._scorer: ScorerRow | None = None
        self._units: dict[str, list[LoggedPrompt]] = {}
        """The session, the words of a kept prompt, or the task: one task of each is drawn from."""
        self._taught = 0
        self._judged = set[int]()

    def take(self, position: int, row: PromptRow) -> None:
        if is_own(row.arm.experiment_id):
            number = row.task_id.rpartition("/")[2]
            if row.task_id.startswith(self._own) and number.isdigit():
                self._judged.add(int(number))
            return
        key = logged_words_key(bytes(row.input))
        if self._lessons.has_read(position, key):
            self._keys_read.add(key)
        elif row.sample is not None and (group := self._groups.add(row.task_id, row.sample, row.group_size, row)):
            self._take_group(group, key, is_kept=position < self._end)

    def _take_group(self, group: Sequence[PromptRow], key: int, *, is_kept: bool) -> None:
        if group[0].kept_apart:
            return
        first, scored = group[0], next((row for row in group if row.score is not None), None)
        if first.adapter_version != self._primary or scored is None or first.program or is_censored(first.select):
            return
        if scored.scorer != self._scorer:
            self._scorer, self._units = scored.scorer, {}
        if key in self._keys_read or self._was_taught(first):
            self._taught += 1
            return
        unit = first.session_id or (f"words {key}" if is_kept else first.task_id)
        prompt = LoggedPrompt(first.task_id, first.arm.sequence, first.task_type or NO_TYPE)
        self._units.setdefault(unit, []).append(prompt)

    def _was_taught(self, row: PromptRow) -> bool:
        inputs = self._lessons.inputs
        return bool(inputs) and (logged_input_sha256(bytes(row.input)) or "")[:TAUGHT_DIGITS] in inputs

    @property
    def found(self) -> UnseenPrompts:
        drawn = [self._random.choice(unit) for unit in self._units.values()]
        return UnseenPrompts(drawn, self._judged, self._taught)
