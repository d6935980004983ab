"""Works answered by programs that run here, each sample a rollout: for `ratchet record`, and for agents of our own.

What is delivered to `ratchet record` again is answered once: later deliveries wait for the first and publish nothing
more.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import httpx

from ratchet.bus.protocol import Bus, Delivery, decode_delivery
from ratchet.programs.task_input import INPUT, as_text
from ratchet.rollouts.agent import Model
from ratchet.rollouts.answers import Answers, response_of
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.command import CommandStart, Program, program_name
from ratchet.rollouts.order import RecordOrder
from ratchet.rollouts.recording import Ran, RolloutOrder, Rollouts
from ratchet.rollouts.rollout import Budget, RecordedRollout
from ratchet.service.deadline_time import time_within
from schemas.messages.response import GenerationLatencies, Response
from schemas.messages.work import Work


class RecordedAnswers:
    """Answers Works with a rollout for each sample, side by side. `order_of`: of the sample with that number."""

    def __init__(self, bus: Bus, http: httpx.AsyncClient, order_of: Callable[[Work, int], RolloutOrder]) -> None:
        self._answers = Answers(bus)
        self._rollouts = Rollouts(http)
        self._order_of = order_of

    async def answer(self, work: Work, body: bytes) -> None:
        """Return when the Response is confirmed; `body` is the Work as it came."""
        await self._answers.answer(work, body, lambda: self._respond(work))

    async def _respond(self, work: Work) -> Response:
        began = time.perf_counter()
        queue_s = max(0.0, (datetime.now(UTC) - work.admitted_at).total_seconds())
        orders = [self._order_of(work, number) for number in range(work.sampling.n)]
        samples = await asyncio.gather(*map(self._rollouts.run, orders))
        latencies = GenerationLatencies(queue_s=queue_s, generate_s=time.perf_counter() - began)
        engine = orders[0].model.served.engine
        return response_of(work, samples, engine=engine, source="ratchet record", latencies=latencies)


class RecordedWork:
    """One task's. `base_url` is the recorder's, as clients need it. `tell` gets sentences for whoever waits: how many
    runs have ended while others run, and, once a request brought tools, each of `of_tools`."""

    def __init__(
        self,
        order: RecordOrder,
        bus: Bus,
        http: httpx.AsyncClient,
        model: Model,
        recorder: Recorder,
        base_url: str,
        *,
        tell: Callable[[str], None] = lambda _: None,
        of_tools: Sequence[str] = (),
    ) -> None:
        self._order = order
        self._model = model
        self._recorder = recorder
        self._base_url = base_url
        self._answers = RecordedAnswers(bus, http, self._order_of)
        self._answered: asyncio.Task[None] | None = None
        self._tell = tell
        self._of_tools = tuple(of_tools)
        self._ended = 0

    async def handle(self, delivery: Delivery) -> None:
        """Return when the Response is confirmed, which is the ack."""
        work = decode_delivery(Work, delivery)
        if self._answered is None or (self._answered.done() and self._has_failed(self._answered)):
            self._ended = 0
            self._answered = asyncio.create_task(self._answers.answer(work, delivery.body))
        await asyncio.shield(self._answered)

    async def stop(self) -> None:
        """The runs end, and what they had is forgotten: the task is over, or nobody waits any more."""
        if self._answered is not None:
            self._answered.cancel()
            await asyncio.gather(self._answered, return_exceptions=True)

    @staticmethod
    def _has_failed(done: asyncio.Task[None]) -> bool:
        return done.cancelled() or done.exception() is not None

    def _order_of(self, work: Work, number: int) -> RolloutOrder:
        program = program_of(self._order.command, work, number, os.environ, self._order.name)
        seconds = time_for(work, datetime.now(UTC), self._order.time_limit_s)
        command = CommandStart(self._recorder, self._base_url, program, seconds)

        async def start(rollout: RecordedRollout) -> Ran:
            ran = await command(rollout)
            self._tell_of_end(work, rollout)
            return ran

        name = program.name or program_name(program.command)
        return RolloutOrder(work, number, name, self._model, start, seconds, budget_of(work))

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
    """Seconds a run may take, so that what it has by then can still be scored before the deadline, within the task's
    constraints."""
    of_task = work.constraints.seconds if work.constraints else None
    limits = [most for most in (limit_s, of_task) if most is not None]
    return time_within((work.deadline - now).total_seconds(), min(limits) if limits else None)


def budget_of(work: Work) -> Budget:
    """Return what the task's constraints leave a run, whose tools are its own affair."""
    given = work.constraints
    return Budget(given.calls, given.tokens) if given else Budget()
