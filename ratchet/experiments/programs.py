"""An agent's programs side by side, out of the log of interactions: what their rollouts scored, and what they took.

Each scorer by itself: what two of them, or two revisions of one, think of an answer can't be held against each other. A
task counts once for each program, with the mean over that program's rollouts in its group: these are no independent
observations. Lost rollouts, which failures of ours ended, have no score. The fleet's own tasks (golden ones, anchors,
evaluations) are left out, and those that asked for the first that passes: of the slower program the rollouts are
missing there in which the faster one was right. Differences between programs are no experiment: not all of them
answered the same tasks.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from ratchet.experiments.served import Mean
from ratchet.logs.best_answer import is_censored
from ratchet.logs.groups import Groups
from ratchet.logs.names import INTERACTIONS, is_own
from ratchet.logs.reader import LogReader, start_of_newest
from ratchet.logs.rows import ProgramRow, ScorerRow, UsageRow
from ratchet.service.errors import JournalError
from schemas.api.programs import ProgramFigures, ProgramsCompared
from schemas.messages.response import MOST_COUNTED
from schemas.messages.reward import ScorerIdentity

MOST_BYTES = 1024**3
"""Bytes of the newest log that are read, about: whole segments."""
FINISHED = "finished"

Name = tuple[str, str, ScorerRow | None]
"""An agent, its program, and who scored."""


@dataclass(slots=True)
class ProgramTally:
    """Adds up one program by one scorer: `score` over tasks, the others over rollouts that told.

    `newest`: the line of the log, counted from where reading began, that was the last of them.
    """

    newest: int = 0
    score: Mean = field(default_factory=Mean)
    rollouts: int = 0
    scored: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    breaks: Counter[str] = field(default_factory=Counter)
    calls: Mean = field(default_factory=Mean)
    sampled_tokens: Mean = field(default_factory=Mean)
    prompt_tokens: Mean = field(default_factory=Mean)
    seconds: Mean = field(default_factory=Mean)

    def add(self, rollouts: Sequence[ProgramRow], line: int) -> None:
        """All that this program made of one task, whose last line that is."""
        self.newest = line
        scores = [one.score for one in rollouts if one.score is not None]
        if scores:
            self.score.add(math.fsum(scores) / len(scores))
            self.scored += len(scores)
        for one in rollouts:
            self.rollouts += 1
            self.ended[one.sample_status or FINISHED] += 1
            if one.usage is not None and _can_be(one.usage):
                self.breaks.update(one.usage.breaks)
                self.calls.add(one.usage.calls)
                self.sampled_tokens.add(one.usage.sampled_tokens)
                self.prompt_tokens.add(one.usage.prompt_tokens)
                if one.usage.seconds is not None:
                    self.seconds.add(one.usage.seconds)

    def figures(self, agent_id: str, program: str, scorer: ScorerRow | None) -> ProgramFigures:
        return ProgramFigures(
            agent_id=agent_id,
            program=program,
            scorer=scorer and ScorerIdentity(**msgspec.structs.asdict(scorer)),
            rollouts=self.rollouts,
            scored=self.scored,
            score=self.score.interval() if self.score.count else None,
            ended=dict(sorted(self.ended.items())),
            breaks=dict(sorted(self.breaks.items())),
            calls=_mean(self.calls),
            sampled_tokens=_mean(self.sampled_tokens),
            prompt_tokens=_mean(self.prompt_tokens),
            seconds=_mean(self.seconds),
        )


class ProgramBook:
    """Reads the log from where it was left, and all of it anew where that place is gone. Blocks."""

    def __init__(self, logs_dir: Path, most_bytes: int = MOST_BYTES) -> None:
        self._logs_dir = logs_dir
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._begin_anew()

    def compare(self, agent_id: str | None = None) -> ProgramsCompared:
        """Compare programs as the log is now. Raises JournalError for a log with a part missing."""
        with self._lock:
            try:
                self._read_on()
            except JournalError:  # retention removed the place, or another log was put there
                self._begin_anew()
                self._read_on()
            found = [name for name in sorted(self._tallies, key=self._place) if agent_id in (None, name[0])]
            items = [self._tallies[name].figures(*name) for name in found]
            return ProgramsCompared(items=items, since=self._since, lines=self._lines)

    def _place(self, name: Name) -> tuple[str, int, str, str]:
        """An agent's programs by the scorer that scored last before those by others."""
        agent_id, program, scorer = name
        newest = max(one.newest for (agent, _, by), one in self._tallies.items() if (agent, by) == (agent_id, scorer))
        return agent_id, -newest, repr(scorer), program

    def _begin_anew(self) -> None:
        self._reader: LogReader | None = None
        self._groups = Groups[str, ProgramRow]()
        self._tallies: dict[Name, ProgramTally] = {}
        self._since: datetime | None = None
        self._lines = 0

    def _read_on(self) -> None:
        if self._reader is None:
            start = start_of_newest(self._logs_dir, INTERACTIONS, self._most_bytes)
            self._reader = LogReader(self._logs_dir, INTERACTIONS, start, on_bad=lambda bad: None)
        for record in self._reader.records(ProgramRow):
            self._take(record.value)

    def _take(self, row: ProgramRow) -> None:
        self._lines += 1
        self._since = self._since or row.timestamp
        if row.program is None or is_own(row.arm.experiment_id) or is_censored(row.select):
            return
        if (group := self._groups.add(row.task_id, row.sample, row.group_size, row)) is not None:
            by_program: dict[Name, list[ProgramRow]] = {}
            for one in group:
                by_program.setdefault((one.agent_id, one.program or "", one.scorer), []).append(one)
            for name, rollouts in by_program.items():
                self._tallies.setdefault(name, ProgramTally()).add(rollouts, self._lines)


def _can_be(usage: UsageRow) -> bool:
    """No number of it is one that no rollout can have, as a line that was admitted before they were bounded may say."""
    counts = (usage.calls, usage.prompt_tokens, usage.sampled_tokens, *usage.breaks.values(), usage.seconds or 0)
    return all(0 <= one <= MOST_COUNTED for one in counts)


def _mean(mean: Mean) -> float | None:
    return mean.mean if mean.count else None
