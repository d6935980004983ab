"""The trainer's worker: a TrainRequest in, an AdapterTrained out, hours later maybe.

A request is on disk before it is acked, so neither the broker's consumer time-out nor the death of the trainer loses
it; the runs on disk are the queue. Nothing is trained twice: a run that ended is announced again, not done again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from ratchet.bus.protocol import Bus, Delivery, decode_delivery, derived_id
from ratchet.bus.topology import ADAPTERS, TRAINING
from ratchet.http.work import Threads
from ratchet.runs.api import TrainingRuns, runs_router
from ratchet.runs.store import RunFolder, RunStore
from ratchet.runtime.runner import Subscription
from ratchet.service import failpoint
from ratchet.service.errors import BusError, RatchetError, Reject
from ratchet.service.telemetry import Log
from schemas.messages.base import DecodeError
from schemas.messages.training import AdapterTrained, TrainRequest
from services.trainer import metrics
from services.trainer.api import trainer_router
from services.trainer.settings import TrainerSettings
from services.trainer.training_process import SERVE, ProcessDied, TrainingProcess

log = Log("trainer")

PREFETCH = 8
POLL_EVERY_S = 30.0
"""The seconds between searches for runs that another trainer left, and for messages that could not be published."""
FIGURES = (
    *("loss", "gradient_norm", "reward", "gap", "effective_share", "mean_weight", "divergence", "good_log_ratio"),
    *("clip_fraction", "entropy", "kl"),
)


def end_this_process() -> None:
    """End as after a SIGTERM from outside: it drains, and exits with 0."""
    signal.raise_signal(signal.SIGTERM)


class Place:
    """A training process, and the run that it has in hand."""

    def __init__(self, show: Callable[[str, Mapping[str, Any]], None], command: Sequence[str]) -> None:
        self._show = show
        self.process = TrainingProcess(self._on_event, command)
        self.come = asyncio.Event()
        """Set when there may be something to do."""
        self.folder: RunFolder | None = None
        self.agent: str | None = None
        self.trouble: str | None = None

    def _on_event(self, event: Mapping[str, Any]) -> None:
        if self.agent is not None:
            self._show(self.agent, event)


class TrainerWorker:
    name = "trainer"

    def __init__(
        self,
        settings: TrainerSettings,
        bus: Bus,
        *,
        command: Sequence[str] = SERVE,
        poll_every_s: float = POLL_EVERY_S,
        leave: Callable[[], None] = end_this_process,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._store = RunStore(settings.adapters_dir)
        self._threads = Threads(self.name)
        self._places = [Place(self._show_event, command) for _ in range(settings.trainer_runs_at_once)]
        self._poll_every_s = poll_every_s
        self._leave = leave
        self._leaving = False
        self._coming = 0
        """Requests that are being recorded."""
        self._loops: list[asyncio.Task[None]] = []
        self._announcing = asyncio.Lock()
        self._held_up: set[Path] = set()
        """Runs that another process was at, or that wait for it, when they were last tried."""

    def routers(self) -> Sequence[APIRouter]:
        runs = TrainingRuns(self._settings.adapters_dir, self._threads)
        return [trainer_router(self.accept), runs_router(runs)]

    async def start(self) -> None:
        """Takes up what was left unfinished."""
        await self._places[0].process.start()  # the others, when there is something for them to do
        self._loops = [asyncio.create_task(self._work(place)) for place in self._places]

    def subscriptions(self) -> Sequence[Subscription]:
        return [Subscription(TRAINING, self.handle, PREFETCH, stalled_after_s=None)]

    def trouble(self) -> str | None:
        if any(loop.done() for loop in self._loops):
            return "the trainer's loop has ended: see the log, and restart it"
        return next((place.trouble for place in self._places if place.trouble), None)

    async def stop(self) -> None:
        """A run in hand is cut short; whoever starts next takes it up from its last checkpoint."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await asyncio.gather(*(place.process.stop() for place in self._places))
        self._threads.close()
        for place in self._places:
            if place.folder is not None and place.folder.outcome is None:
                place.folder.withdraw()

    async def handle(self, delivery: Delivery) -> None:
        """Returns when the request is on disk.

        Raises Reject for no TrainRequest, or one for an unknown agent, once that is told: who asked would wait a day.
        Raises BusError where this trainer is about to leave.
        """
        request = decode_delivery(TrainRequest, delivery)
        try:
            await self.accept(request)
        except Reject as refusal:
            told = {"request_id": request.request_id, "agent_id": request.agent_id, "reason": str(refusal)}
            await self._publish(AdapterTrained.model_validate(told | {"status": "failed"}))
            raise

    async def accept(self, request: TrainRequest) -> RunFolder:
        """Its record, once it is on disk; one recorded before stays as it was. Raises Reject for an unknown agent.

        Raises BusError where this trainer is about to leave; JournalError, DiskFull.
        """
        if self._leaving:
            raise BusError("this trainer is leaving: the request is for the next one")
        if request.agent_id not in self._settings.agents:
            raise Reject(f"agent {request.agent_id!r} is not of this fleet ({', '.join(self._settings.agents)})")
        self._coming += 1
        try:
            folder = await asyncio.to_thread(self._store.record, request)
        finally:
            self._coming -= 1
        failpoint.reach("job-recorded")
        log.info("recorded", f"run {request.request_id} is to be done", agent_id=request.agent_id)
        self._look_again()
        return folder

    def _look_again(self) -> None:
        for place in self._places:
            place.come.set()

    async def _work(self, place: Place) -> None:
        while True:
            try:
                await self._do_all(place)
                place.trouble = None
            except (RatchetError, OSError) as error:
                place.trouble = str(error)
                log.error("turn-failed", f"{error}; it is tried again", exc_info=error)
            comes = await self._something_comes(place)
            if not comes and self._settings.trainer_once and self._nothing_is_left and not self._leaving:
                self._leaving = True
                log.info("leaving", "there is nothing left to train")
                self._leave()
                await asyncio.Event().wait()

    @property
    def _nothing_is_left(self) -> bool:
        return not self._held_up and not any(place.trouble or place.folder for place in self._places)

    async def _something_comes(self, place: Place) -> bool:
        """False where no request came until the next poll."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._poll_every_s):
                await place.come.wait()
        came = place.come.is_set() or self._coming > 0
        place.come.clear()
        return came

    async def _do_all(self, place: Place) -> None:
        """Do all there is to do, but for agents that other places are at. Raises BusError, JournalError, DiskFull."""
        await self._announce()
        unfinished = await asyncio.to_thread(self._store.unfinished_runs)
        self._held_up &= {folder.path for folder in unfinished}
        for number, folder in enumerate(unfinished):
            metrics.waiting.set(len(unfinished) - number)
            try:
                if folder.request.agent_id not in {one.agent for one in self._places}:
                    await self._do(place, folder)
            except DecodeError as error:
                log.error("unreadable", f"{folder.path} can't be read, it is passed over: {error.reason}")
            await self._announce()
        metrics.waiting.set(0)
        await asyncio.to_thread(self._store.forget_old, self._settings.trainer_keep_jobs)

    async def _do(self, place: Place, folder: RunFolder) -> None:
        """Try a run until it has an outcome; not while another process works at it, or at another run of its agent."""
        request = folder.request
        while folder.outcome is None:
            if folder.attempts >= self._settings.trainer_attempts:
                give_up(folder, "it made no step in any of them")
                return
            self._name_what_is_taken_up(folder, request)
            if not await self._try(place, folder, request):
                self._held_up.add(folder.path)
                return
        self._held_up.discard(folder.path)

    async def _try(self, place: Place, folder: RunFolder, request: TrainRequest) -> bool:
        """Try a run. True if it came to an end, its own or that of the process."""
        place.folder, place.agent = folder, request.agent_id
        metrics.running.labels(request.agent_id).set(1)
        try:
            ended = await place.process.run(folder.path)
        except ProcessDied as error:
            ended = True
            metrics.deaths.inc()
            log.error("process-died", f"run {request.request_id}: {error}", agent_id=request.agent_id)
            if folder.attempts >= self._settings.trainer_attempts:
                give_up(folder, str(error))
        metrics.running.labels(request.agent_id).set(0)
        place.folder = place.agent = None
        self._look_again()
        return ended

    def _name_what_is_taken_up(self, folder: RunFolder, request: TrainRequest) -> None:
        """Log, once for each run, that it was begun elsewhere, or that it waits."""
        if folder.path in self._held_up:
            return
        if not folder.is_free:
            about = "somebody is at it, or at another run of its agent; it is tried again"
            log.info("held-up", f"run {request.request_id} waits: {about}", agent_id=request.agent_id)
        elif folder.attempts:
            about = f"begun {folder.attempts} times, the last time by {folder.holder}"
            log.info("taken-up", f"run {request.request_id} is taken up: {about}", agent_id=request.agent_id)

    async def _announce(self) -> None:
        """Announce every run that ended and was not announced. Raises BusError; what is left is announced later."""
        async with self._announcing:
            for folder in await asyncio.to_thread(self._store.unannounced_runs):
                outcome = folder.outcome
                assert outcome is not None
                await self._publish(outcome)
                folder.announced = True
                metrics.runs.labels(outcome.agent_id, outcome.status).inc()

    async def _publish(self, outcome: AdapterTrained) -> None:
        message_id = derived_id(outcome.request_id, "trained")
        await self._bus.publish(ADAPTERS, outcome.encode(), type=AdapterTrained.TYPE, message_id=message_id)
        log.info(
            outcome.status,
            outcome.reason or f"{outcome.adapter_version} is trained",
            agent_id=outcome.agent_id,
            request_id=outcome.request_id,
            version=outcome.adapter_version,
            counts=outcome.counts,
        )

    def _show_event(self, agent: str, event: Mapping[str, Any]) -> None:
        """Show an event of a run in hand in log and metrics."""
        if "warning" in event:
            log.warning("run-warning", f"{agent}: {event['warning']}")
            return
        if "share" not in event:
            about = {name: value for name, value in event.items() if name != "stage"}
            log.info(f"run-{event['stage']}", f"{agent}: {event['stage']}", **about)
        for part, count in event.get("counts", {}).items():
            metrics.groups.labels(agent, part).set(count)
        if "steps" in event:
            metrics.step.labels(agent).set(event["step"])
            metrics.steps.labels(agent).set(event["steps"])
        for name in FIGURES:
            if name in event:
                metrics.figures.labels(agent, name).set(event[name])


def give_up(folder: RunFolder, reason: str) -> None:
    folder.fail(f"given up after {folder.attempts} attempts: {reason}", "trainer")
