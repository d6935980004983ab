"""Prompts for a shadow replay, drawn from the log: what users asked, the primary answered and no training saw.

A training reads the log from one byte to another, which its adapter's card says; the log behind the newest such byte,
of the candidate and of those it was made from, is new to it, except for what was asked before in the same words. Left
out as well: the fleet's own tasks; those without a score, which tell more of an outage than of the primary; those
scored by another scorer than the newest one; programs' rollouts; and of a session all tasks but one, drawn at random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from ratchet.adapters.evaluations import logged_input_sha256
from ratchet.adapters.manifest import read_card
from ratchet.experiments.logged import NO_TYPE
from ratchet.experiments.shadow import judged_types
from ratchet.logs.best_answer import is_censored
from ratchet.logs.groups import Groups
from ratchet.logs.names import INTERACTIONS, REPLAY_TASKS, is_own
from ratchet.logs.reader import LogReader, start_of_newest
from ratchet.logs.rows import ArmRow, ScorerRow
from ratchet.service.errors import AdapterError
from schemas.messages.work import BASE_VERSION
from schemas.records.registry import AgentAdapters

MOST_BYTES = 256 * 1024**2
"""Of the newest log that are read, about: whole segments."""
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
    """What there is to draw from. `judged`: numbers of the prompts that an earlier candidate was asked."""

    found: list[LoggedPrompt] = field(default_factory=list)
    judged: set[int] = field(default_factory=set)

    def draw(self, most: int, random: Random) -> tuple[list[LoggedPrompt], int]:
        """At most so many, in random order, and how many of them have judged an earlier candidate.

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
    """Of each type that is rare among those that are drawn anyway, the ones it lacks, from behind the first `most`."""
    room = int(MOST_EXTRA * most)
    counts, extra = Counter(one.task_type for one in pool[: most - room]), list[LoggedPrompt]()
    for one in pool[most:]:
        if counts[one.task_type] < LEAST_OF_TYPE and len(extra) < room:
            counts[one.task_type] += 1
            extra.append(one)
    return extra


def taught_up_to(adapters_dir: Path, agent_id: str, adapters: AgentAdapters, version: str) -> int:
    """The byte of the log up to which trainings read, of the version and of those it was made from.

    Of an ancestor whose folder is gone nothing is known, and nothing needed: it read what came before.
    """
    end, seen = 0, set[str]()
    while version != BASE_VERSION and version not in seen:
        seen.add(version)
        entry = adapters.versions.get(version)
        try:
            card = read_card(adapters_dir / agent_id / version)
        except AdapterError:
            version = (entry.parent if entry else None) or BASE_VERSION
            continue
        end = max([end, *(part.end for part in card.data.ranges if part.log == INTERACTIONS)])
        version = card.parent
    return end


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
    input: msgspec.Raw = msgspec.Raw()


def unseen_prompts(logs_dir: Path, agent_id: str, primary: str, taught: int, random: Random) -> UnseenPrompts:
    """`primary`: who answered them. `taught`: the byte from which on the log is new. Reads; blocks.

    Raises JournalError for a log with a part missing.
    """
    reading = _Reading(agent_id, primary, taught, random)
    start = start_of_newest(logs_dir, INTERACTIONS, MOST_BYTES)
    for record in LogReader(logs_dir, INTERACTIONS, start, on_bad=lambda _: None).records(PromptRow):
        if record.value.agent_id == agent_id:
            reading.take(record.position, record.value)
    return reading.found


class _Reading:
    """One pass over the log."""

    def __init__(self, agent_id: str, primary: str, taught: int, random: Random) -> None:
        self._own = f"{REPLAY_TASKS}{agent_id}/"
        self._primary = primary
        self._taught = taught
        self._random = random
        self._groups = Groups[str, PromptRow]()
        self._seen_inputs = set[str | None]()
        self._sessions: dict[str, list[PromptRow]] = {}
        self._scorer: ScorerRow | None = None
        self._units: dict[str, list[LoggedPrompt]] = {}
        """By session or task: one task of each is drawn from."""
        self.judged = set[int]()

    def take(self, position: int, row: PromptRow) -> None:
        if is_own(row.arm.experiment_id):
            number = row.task_id.rpartition("/")[2]
            if row.task_id.startswith(self._own) and number.isdigit():
                self.judged.add(int(number))
        elif position < self._taught:
            if not row.sample:
                self._seen_inputs.add(logged_input_sha256(bytes(row.input)))
        elif row.sample is not None and (group := self._groups.add(row.task_id, row.sample, row.group_size, row)):
            self._take_group(group)

    def _take_group(self, group: Sequence[PromptRow]) -> None:
        first, scored = group[0], next((row for row in group if row.score is not None), None)
        if first.adapter_version != self._primary or scored is None or first.program or is_censored(first.select):
            return
        if scored.scorer != self._scorer:
            self._scorer, self._units = scored.scorer, {}
        if logged_input_sha256(bytes(first.input)) not in self._seen_inputs:
            prompt = LoggedPrompt(first.task_id, first.arm.sequence, first.task_type or NO_TYPE)
            self._units.setdefault(first.session_id or first.task_id, []).append(prompt)

    @property
    def found(self) -> UnseenPrompts:
        return UnseenPrompts([self._random.choice(unit) for unit in self._units.values()], self.judged)
