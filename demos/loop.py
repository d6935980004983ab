"""The turns of the ratchet on a fleet that is up: ask, train, follow the experiment; and at last the bad adapter.

It only asks tasks and asks for trainings: what is promoted and what is rolled back the fleet decides by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from demos.adapter_status import AdapterStatus, AdapterStatusReader, experiment_line
from demos.books import Users
from demos.sabotage import inject_bad_adapter
from demos.story import DemoTraining, DemoTurn, Sabotage
from ratchet.adapters.manifest import read_card
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import end_of_log
from ratchet.runs.progress import read_progress
from ratchet.runs.store import RunStore
from ratchet.service.errors import TimedOut
from schemas.messages.base import Metadata
from schemas.messages.training import TrainRequest
from services.cli.narrator import Narrator
from services.cli.terminal import CommandError
from services.cli.train.run import publish_train_request

POLL_S = 0.25
POLL_SHARE, LONGEST_POLL_S = 0.01, 2.0
"""Part of the time it has waited already: what takes minutes is asked for every two seconds, and left the processor."""
WAITING_FOR_GATE = ("trained", "validated")
ON_TRIAL = "canary"
LOOKS_AFTER_PROMOTION = 40
"""Looks, a quarter of a second apart, within which the new primary's first answer is to come."""
USUAL_PROOF = 260
"""Tasks a clearly better candidate is promoted after, ramp and limits included (`python -m bench.decision`)."""


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """`groups`: tasks of the primary to train on, each turn. `most`: tasks an experiment may take."""

    groups: int = 128
    most: int = 2500
    patience_s: float = 120.0
    training_s: float | None = None
    """Seconds a training may take; `patience_s` if not given, as for everything else."""
    seed: int = 1


class Loop:
    """`progress` is told the stage (collect, train, prove) and how much of it is done, up to 1."""

    def __init__(
        self,
        status: AdapterStatusReader,
        users: Users,
        narrator: Narrator,
        plan: LoopPlan,
        run: str,
        progress: Callable[[str, float], None] = lambda stage, done: None,
    ) -> None:
        self._status = status
        self._users = users
        self._tell = narrator
        self._plan = plan
        self._run = run
        self._progress = progress
        self._marked = ""
        self._since = 0

    def turn(self, number: int) -> DemoTurn:
        """Raises CommandError where the trainer makes no adapter, TimedOut, BusError, RegistryError, AdapterError."""
        began = time.monotonic()
        parent = self._status().adapters.primary
        if parent != self._marked:
            self._mark(parent)
        self._collect(parent)
        version = self._train(number)
        training = DemoTraining.of(read_card(self._status.store.folder / self._status.agent_id / version))
        self._tell.say(_training_line(version, parent, training))
        adapter_status = self._await_gate(version)
        if adapter_status.state(version) == ON_TRIAL:
            tasks, adapter_status = self._follow(version)
        else:
            tasks = 0
        self._tell.say(self._newest_reason(version))
        return DemoTurn(
            version=version,
            parent=parent,
            training=training,
            state=adapter_status.state(version) or "unknown",
            tasks=tasks,
            swap_s=adapter_status.swap_s,
            seconds=time.monotonic() - began,
        )

    def sabotage(self, samples: int) -> Sabotage:
        """Raises as `turn`."""
        began = time.monotonic()
        version = inject_bad_adapter(self._status.store, self._status.agent_id)
        self._tell.say(f"{version}: the primary's adapter with what it learned turned around, called validated")
        self._await_gate(version)
        traffic, adapter_status = self._follow(version)
        self._tell.say(self._newest_reason(version))
        tasks = self._users.books.by_version[version]
        seconds = time.monotonic() - began
        return Sabotage(version, adapter_status.state(version) or "unknown", tasks, tasks * samples, traffic, seconds)

    def _collect(self, primary: str) -> None:
        """Users ask until there is enough of this primary's to learn from, beyond what an earlier turn learned from."""
        books = self._users.books
        before = books.by_version[primary] + books.by_big

        def enough() -> bool:
            answered = books.by_version[primary] + books.by_big - before
            self._progress("collect", answered / self._plan.groups)
            shown = min(answered, self._plan.groups)
            self._tell.show(f"{shown} of {self._plan.groups} answered", shown * 4 // self._plan.groups)
            return answered >= self._plan.groups

        with self._tell.waiting(f"users ask {primary}", key=0):
            self._users.ask_until(enough, most=self._plan.most)

    def _train(self, number: int) -> str:
        """The new version, once the fleet knows it."""
        before = self._status()
        request = TrainRequest(
            request_id=f"demo-{self._run}-{number}",
            agent_id=self._status.agent_id,
            metadata=Metadata(timestamp=datetime.now(UTC), source="ratchet demo"),
            since=self._since,
            until=end_of_log(self._status.access.logs_dir, INTERACTIONS),
            seed=self._plan.seed,
        )
        publish_train_request(self._status.access, request)
        known = before.adapters.versions.keys()

        def is_over(now: AdapterStatus) -> bool:
            self._show_training(request.request_id)
            return bool(_new(now, known)) or _has_failed(now, before)

        with self._tell.waiting("the trainer learns from the log", key=0):
            adapter_status = self._wait(is_over, "a new adapter", self._plan.training_s)
        if not (versions := _new(adapter_status, known)):
            log = f"{self._process_logs()}/trainer.log"
            raise CommandError(f"the trainer made no adapter of {request.request_id}: {log} says why")
        return versions[0]

    def _show_training(self, request_id: str) -> None:
        """Show how far it is, where the trainer has a file of it here."""
        runs = RunStore(self._status.store.folder)
        record = read_progress(runs.folder(self._status.agent_id, request_id).progress)
        if record is not None and record.progress.steps and record.progress.step:
            step, steps = record.progress.step, record.progress.steps
            self._progress("train", step / steps)
            self._tell.show(f"step {step} of {steps}", step * 4 // steps)

    def _await_gate(self, version: str) -> AdapterStatus:
        with self._tell.waiting(f"the gate looks at {version}"):
            return self._wait(lambda now: now.state(version) not in WAITING_FOR_GATE, f"the gate's word on {version}")

    def _follow(self, version: str) -> tuple[int, AdapterStatus]:
        """Users ask until the version is out of every experiment, and answers where it was promoted: its first answer
        as the primary ends the swap. Returns how many tasks that took.

        Raises TimedOut where there is no verdict when they have asked the most they may.
        """
        latest = self._status()
        promoted = False
        swap_before, looks_left = latest.swap_s, LOOKS_AFTER_PROMOTION

        def is_settled() -> bool:
            nonlocal latest, promoted, looks_left
            latest = self._status()
            if not promoted and latest.adapters.primary == version:
                promoted = True
                self._mark(version)
            self._progress("prove", 1.0 if promoted else min(1.0, self._units(latest) / USUAL_PROOF))
            self._tell.show(*experiment_line(latest))
            looks_left -= promoted
            swapping = promoted and latest.swap_s == swap_before and looks_left > 0
            return latest.state(version) != ON_TRIAL and not swapping

        with self._tell.waiting(f"users ask, and {version} gets a share"):
            tasks = self._users.ask_until(is_settled, most=self._plan.most, judging=True)
        return tasks, self._wait(lambda now: now.state(version) != ON_TRIAL, f"a verdict on {version}")

    @staticmethod
    def _units(status: AdapterStatus) -> int:
        return sum(status.experiment.units.values()) if status.experiment else 0

    def _mark(self, primary: str) -> None:
        """Note that what this primary answers from here on may be trained on: nothing that was asked to measure it."""
        self._marked = primary
        self._since = end_of_log(self._status.access.logs_dir, INTERACTIONS)

    def _wait(
        self, happened: Callable[[AdapterStatus], bool], what: str, patience_s: float | None = None
    ) -> AdapterStatus:
        patience_s = patience_s or self._plan.patience_s
        began = time.monotonic()
        while not happened(adapter_status := self._status()):
            waited = time.monotonic() - began
            if waited > patience_s:
                raise TimedOut(f"{what} did not come within {patience_s:.0f} s: see {self._process_logs()}")
            time.sleep(min(LONGEST_POLL_S, max(POLL_S, POLL_SHARE * waited)))
        return adapter_status

    def _newest_reason(self, version: str) -> str:
        """The words of the latest decision about the version."""
        about = [d for d, _ in self._status.store.ledger.read() if getattr(d.move, "version", None) == version]
        return f"{about[-1].move.kind}: {about[-1].reason}" if about else f"nothing was decided about {version}"

    def _process_logs(self) -> str:
        record = self._status.access.record
        return str(record.programs[-1].log.parent) if record else "the services' logs"


def _new(adapter_status: AdapterStatus, known: object) -> list[str]:
    return [version for version in adapter_status.adapters.versions if version not in known]  # type: ignore[operator]


def _has_failed(now: AdapterStatus, before: AdapterStatus) -> bool:
    """A run ended without an adapter."""
    return any(now.trainings.get(how, 0) > before.trainings.get(how, 0) for how in ("refused", "failed"))


def _training_line(version: str, parent: str, training: DemoTraining) -> str:
    took = "" if training.seconds is None else f" in {training.seconds:.1f} s"
    data = f"{training.groups} groups, {training.samples} samples"
    if training.demonstrations:
        data = f"{training.demonstrations} demonstrations" + (f" and {data}" if training.groups else "")
    return f"{version}: trained from {parent} on {data}{took}"
