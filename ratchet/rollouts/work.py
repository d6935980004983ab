"""A Work answered by running a program, once for each sample, side by side: each run is a rollout, recorded.

What is delivered here again is answered once: later deliveries wait for the first and publish nothing more.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import httpx

from ratchet.bus.protocol import Bus, Delivery, decode_delivery
from ratchet.conversation.template import ChatTemplate
from ratchet.programs.task_input import INPUT, as_text
from ratchet.rollouts.answers import RecordedAnswers
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.command import Program, program_name, run_with
from ratchet.rollouts.order import RecordOrder
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.service.telemetry import Log
from schemas.api.generate import ServedModel
from schemas.messages.response import Sample
from schemas.messages.work import Work

log = Log("recorder")

MARGIN = 0.1
LARGEST_MARGIN_S = 60.0
"""What is left of the time to the deadline for scoring what the runs have by then."""


class RecordedWork:
    """One task's. `base_url` is the recorder's, as clients need it. `tell` gets sentences for whoever waits: how many
    runs have ended while others run, and, once a request brought tools, each of `of_tools`."""

    def __init__(
        self,
        order: RecordOrder,
        bus: Bus,
        http: httpx.AsyncClient,
        served: ServedModel,
        template: ChatTemplate,
        recorder: Recorder,
        base_url: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        tell: Callable[[str], None] = lambda _: None,
        of_tools: Sequence[str] = (),
    ) -> None:
        self._order = order
        self._recorder = recorder
        self._base_url = base_url
        self._now = now
        self._answers = RecordedAnswers(bus, http, order.agent_urls, served, template, self._run, now)
        self._answered: asyncio.Task[None] | None = None
        self._tell = tell
        self._of_tools = tuple(of_tools)
        self._ended = 0

    async def handle(self, delivery: Delivery) -> None:
        """Returns when the Response is confirmed, which is the ack."""
        work = decode_delivery(Work, delivery)
        if self._answered is None or (self._answered.done() and self._failed(self._answered)):
            self._ended = 0
            self._answered = asyncio.create_task(self._answers.answer(work, delivery.body))
        await asyncio.shield(self._answered)

    async def stop(self) -> None:
        """The runs end, and what they had is forgotten: the task is over, or nobody waits any more."""
        if self._answered is not None:
            self._answered.cancel()
            await asyncio.gather(self._answered, return_exceptions=True)

    @staticmethod
    def _failed(done: asyncio.Task[None]) -> bool:
        return done.cancelled() or done.exception() is not None

    async def _run(self, work: Work, number: int, rollout: RecordedRollout) -> Sample:
        program = program_of(self._order.command, work, number, os.environ, self._order.name)
        timeout_s = time_for(work, self._now(), self._order.time_limit_s)
        sample = await run_with(self._recorder, self._base_url, rollout, program, timeout_s=timeout_s)
        if sample.status == "lost":
            log.warning("lost", f"run {number} was lost: {rollout.engine_trouble}", task_id=work.task_id)
        self._tell_of_end(work, rollout)
        return sample

    def _tell_of_end(self, work: Work, rollout: RecordedRollout) -> None:
        self._ended += 1
        if self._ended < work.sampling.n:
            self._tell(f"{self._ended} of {work.sampling.n} runs have ended")
        if rollout.offered_tools:
            limits, self._of_tools = self._of_tools, ()
            for limit in limits:
                self._tell(f"note: {limit}")


def program_of(
    command: tuple[str, ...], work: Work, number: int, environment: Mapping[str, str], name: str | None = None
) -> Program:
    """The input is on its stdin, and where an argument says `{input}`. Of ours its environment has RATCHET_TASK_ID and
    RATCHET_SAMPLE alone: addresses and tokens of the fleet are not its affair. It never sees reference or criteria. Of
    several runs each line of stderr has the run's number before it."""
    text = as_text(work.input)
    given = {name: value for name, value in environment.items() if not name.startswith("RATCHET_")}
    given |= {"RATCHET_TASK_ID": work.task_id, "RATCHET_SAMPLE": str(number)}
    words = tuple(part.replace(INPUT, text) for part in command)
    label = f"[{number}] " if work.sampling.n > 1 else ""
    return Program(words, stdin=text, environment=given, name=name or program_name(command), label=label)


def time_for(work: Work, now: datetime, limit_s: float | None) -> float:
    """Seconds a run may take, so that what it has by then can still be scored before the deadline."""
    return time_within((work.deadline - now).total_seconds(), limit_s)


def time_within(left_s: float, limit_s: float | None) -> float:
    """The same, by the seconds that are left to the deadline."""
    within = max(0.0, left_s - min(LARGEST_MARGIN_S, MARGIN * left_s))
    return within if limit_s is None else min(within, limit_s)
