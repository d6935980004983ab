"""The training runs of a fleet, whoever asked for them: list them, look on at one, cancel one. Reads and marks files.

It needs neither broker nor trainer, only the adapters folder that they share.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ratchet.service.errors import NotFound
from ratchet.training_runs.reader import place_of_run
from ratchet.training_runs.store import RunFolder, RunStore
from schemas.api.runs import RunView
from schemas.messages.base import DecodeError
from services.cli.terminal import TimedOut, say
from services.cli.train.view import TrainView

POLL_S = 1.0
CANCEL_WAIT_S = 120.0
Wait = Callable[[float], object]


class TrainingsHere:
    """Those in an adapters folder; `wait` is called between two looks."""

    def __init__(self, adapters_dir: Path, agents: Sequence[str], wait: Wait = time.sleep) -> None:
        self.store = RunStore(adapters_dir)
        self._agents = agents
        self._wait = wait

    def views(self, agent: str | None) -> list[tuple[RunView, RunFolder]]:
        """The newest last; a damaged record is left out."""
        found = ((view, folder) for view, folder in self._views() if agent in (None, view.agent_id))
        return sorted(found, key=lambda one: place_of_run(one[0]))

    def _views(self) -> Iterator[tuple[RunView, RunFolder]]:
        for folder in self.store.every():
            with suppress(FileNotFoundError, DecodeError):
                yield folder.run.view, folder

    def chosen(self, run_id: str | None, agent: str | None) -> RunFolder:
        """The named run; else the one at work, else the newest that is not over. Raises NotFound."""
        if run_id is not None:
            named = self.store.named(run_id)
            if not named:
                raise NotFound(f"there is no training run {run_id!r} here: ratchet train --list")
            return named[0]
        agents = [agent] if agent else self._agents
        for at_work in filter(None, map(self.store.at_work, agents)):
            return at_work
        waiting = [folder for folder in self.store.unfinished() if folder.request.agent_id in agents]
        if not waiting:
            raise NotFound(f"no run of {' or '.join(agents)} is at work or waits for a trainer: ratchet train --list")
        return waiting[-1]

    def watched(self, folder: RunFolder, view: TrainView, *, at_most_s: float | None = None) -> Any:
        """Its outcome as JSON, once it has one. Raises TimedOut, and NotFound where its record is removed."""
        waited, said = 0.0, ""
        while (outcome := folder.outcome) is None:
            if not folder.path.exists():
                raise NotFound("its record was removed: whoever asked for it gave it up")
            if (record := folder.run.progress) is not None and folder.taken:
                view.show(record)
            elif (word := self._why_nobody(folder)) != said:
                said = word
                say(word)
            if at_most_s is not None and waited >= at_most_s:
                raise TimedOut(f"{folder.holder} has not ended it within {at_most_s:.0f} s: see what it does")
            self._wait(POLL_S)
            waited += POLL_S
        return json.loads(outcome.encode())

    def _why_nobody(self, folder: RunFolder) -> str:
        if folder.taken:
            return f"{folder.holder} begins it"
        busy = self.store.at_work(folder.request.agent_id)
        if busy is not None:
            return f"it waits until {busy.request.request_id} has ended"
        return "nobody is at it: a trainer of the fleet takes it up within half a minute (is one up? ratchet status)"


def described(folder: RunFolder) -> str:
    """Who is at it, in a sentence's first half."""
    view = folder.run.view
    return f"run {view.run_id} of agent {view.agent_id}, asked for by {view.asked_by}, is at work ({folder.holder})"
