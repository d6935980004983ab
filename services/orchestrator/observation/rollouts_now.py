"""Keeps the newest report of each runner on its rollouts and programs, and publishes an event where it is news.

It is kept in memory, for people: the log has the results. A runner that is silent has no rollouts. Runners lie where
code of strangers runs, so the size and the number of reports are bounded.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ratchet.bus.protocol import Delivery
from ratchet.service.telemetry import Log
from schemas.api.programs import FleetRollout, FleetRollouts, RunnerView
from schemas.messages.base import DecodeError
from schemas.messages.runner_rollouts import RolloutProgress, RunnerRollouts
from services.orchestrator.observation.event_hub import EventHub

log = Log("rollouts")

SILENT_S = 15.0
"""A runner that has told nothing for so long is gone, and so is what it ran."""
KEPT = 1024
"""Rollouts that are known at a time; those that ended first are forgotten first."""
MOST_RUNNING = 8192
"""That are known to run, on all runners."""
MOST_TOLD = 1024
"""The most rollouts of one message; of more only the last count, where those that run stand."""
MOST_BYTES = 4 * 1024 * 1024
MOST_RUNNERS = 256
MOST_PROGRAMS = 1024
"""That a runner tells of; of more the first count."""

Name = tuple[str, int]
"""The name of a rollout: its task and which of the group."""


@dataclass(frozen=True, slots=True)
class Heard:
    """`at` in seconds of a steady clock."""

    at: float
    at_once: int
    waiting: int
    programs: Mapping[str, Mapping[str, str]]
    """Programs by agent, each with its revision."""


class RolloutsNow:
    def __init__(self, hub: EventHub, seconds: Callable[[], float]) -> None:
        self._hub = hub
        self._seconds = seconds
        self._runners: dict[str, Heard] = {}
        self._running: dict[Name, FleetRollout] = {}
        self._ended: OrderedDict[Name, FleetRollout] = OrderedDict()

    def receive_broadcast(self, delivery: Delivery) -> None:
        """A broadcast of a runner's."""
        if delivery.type != RunnerRollouts.TYPE:
            return
        if len(delivery.body) > MOST_BYTES:
            log.error("rollouts-unreadable", f"a runner tells {len(delivery.body):,} bytes: passed over")
            return
        try:
            message = RunnerRollouts.decode(delivery.body)
        except DecodeError as error:
            log.error("rollouts-unreadable", error.reason)
            return
        self._forget_silent()
        if message.runner not in self._runners and len(self._runners) >= MOST_RUNNERS:
            log.error("too-many-runners", f"{MOST_RUNNERS} runners tell already: {message.runner} is passed over")
            return
        before = self._runners.get(message.runner)
        programs = _by_agent(message) if message.programs is not None else before.programs if before else {}
        self._runners[message.runner] = Heard(self._seconds(), message.at_once, message.waiting, programs)
        told = {(one.task_id, one.sample): one for one in message.items[-MOST_TOLD:]}
        for name in [name for name, one in self._running.items() if one.runner == message.runner and name not in told]:
            del self._running[name]
        for name, one in told.items():
            self._take(name, one, message.runner)

    def now(self, task_id: str | None = None, agent_id: str | None = None) -> FleetRollouts:
        """Those that run, and the newest that ended, the oldest first."""
        self._forget_silent()
        every = (*self._ended.values(), *self._running.values())
        running = Counter(one.runner for one in self._running.values())
        found = [one for one in every if task_id in (None, one.task_id) and agent_id in (None, one.agent_id)]
        return FleetRollouts(
            items=sorted(found, key=lambda one: (one.started_at, one.task_id, one.sample)),
            runners=[
                RunnerView(runner=name, at_once=heard.at_once, running=running[name], waiting=heard.waiting)
                for name, heard in sorted(self._runners.items())
            ],
        )

    def declared_programs(self, agent_id: str) -> Sequence[Mapping[str, str]]:
        """Return each runner's programs for this agent's tasks: name → revision."""
        self._forget_silent()
        return [heard.programs[agent_id] for heard in self._runners.values() if agent_id in heard.programs]

    def _take(self, name: Name, told: RolloutProgress, runner: str) -> None:
        one = FleetRollout.from_valid(told.__dict__ | {"runner": runner})
        known = self._running.get(name) or self._ended.get(name)
        if told.state == "running":
            if name not in self._running and len(self._running) >= MOST_RUNNING:
                return
            self._ended.pop(name, None)
            self._running[name] = one
        elif known is None or known.started_at <= one.started_at:
            self._running.pop(name, None)
            self._ended[name] = one
            while len(self._ended) > KEPT:
                self._ended.popitem(last=False)
        else:
            return
        if known is None or _has_moved(known, one):
            self._publish(one)

    def _publish(self, one: FleetRollout) -> None:
        if self._hub.clients:
            self._hub.publish("rollout", one.model_dump(mode="json"))
        else:
            self._hub.pass_over()

    def _forget_silent(self) -> None:
        before = self._seconds() - SILENT_S
        gone = {name for name, heard in self._runners.items() if heard.at < before}
        if not gone:
            return
        for name in gone:
            del self._runners[name]
        self._running = {name: one for name, one in self._running.items() if one.runner not in gone}


def _has_moved(before: FleetRollout, now: FleetRollout) -> bool:
    return (before.state, before.calls, before.sampled_tokens) != (now.state, now.calls, now.sampled_tokens)


def _by_agent(message: RunnerRollouts) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for one in (message.programs or ())[:MOST_PROGRAMS]:
        found.setdefault(one.agent_id, {})[one.name] = one.revision
    return found
