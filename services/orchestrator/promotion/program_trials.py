"""One agent's programs on their way: asked for, tried on live traffic, watched. A part of its promoter's turn.

What a program is, its runners say: an experiment begins once all of them have both programs in one revision each, and
the new one has passed the gate; it ends without a winner as soon as a runner has another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ratchet.service.telemetry import Log
from schemas.records.decision import Move, ProgramArms, ProgramRevision, RejectProgram, RunningExperiment
from schemas.records.evidence import Verdict
from schemas.records.registry import AgentAdapters
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.promotion.experiment_transitions import (
    ExperimentPolicy,
    Where,
    may_begin,
    move_after_verdict,
    program_canary,
)
from services.orchestrator.promotion.gate import Pauses
from services.orchestrator.promotion.shadow_gate import GateVerdict

log = Log("program-trials")

RUNNERS_READY_S = 30.0
"""Seconds that runners may take to have both programs; a runner that is gone is forgotten sooner."""


Declared = Mapping[str, str]
"""The programs of an agent that one runner has, each with its revision."""


class Decide(Protocol):
    async def __call__(
        self, move: Move, reason: str, *, evidence: object = None, running: RunningExperiment | None = None
    ) -> None:
        """Into the ledger of decisions, then into effect. Raises RegistryError."""


@dataclass(eq=False)
class ProgramTrials:
    """`told`: what each runner that is there says of the agent's programs. `gate`: asks both of them."""

    arms: Arms
    policy: ExperimentPolicy
    told: Callable[[], Sequence[Declared]]
    gate: Callable[[ProgramArms], Awaitable[GateVerdict]]
    decide: Decide
    where: Callable[[], Where]
    seconds: Callable[[], float]
    pauses: Pauses

    def __post_init__(self) -> None:
        self._at_gate: tuple[int, ProgramArms, asyncio.Task[GateVerdict]] | None = None
        """The decision that asked for it, the revisions that are compared, and the gate at work."""
        self._waits: tuple[int, float] | None = None
        """The decision for whose sake runners are waited for, and since when."""

    async def turn(self) -> None:
        """Begin what is due. Raises RegistryError, BusError."""
        if self._adapters.distrusted is None:
            await self._begin()

    @property
    def _adapters(self) -> AgentAdapters:
        return self.arms.adapters

    async def end_of_another(self) -> None:
        """End what is no longer about what runners have, before any verdict on it. Raises RegistryError, BusError."""
        for running in self._adapters.running:
            if running.programs is None or (reason := difference(running.programs, self.told())) is None:
                continue
            move = move_after_verdict(running, Verdict.ABORT, self.policy, self.where())
            await self.decide(move, reason, running=running)

    @property
    def watchable(self) -> ProgramArms | None:
        """The program that answers by default and the one before it, where all runners have both."""
        programs = self._adapters.programs
        if programs.primary is None or programs.previous is None:
            return None
        found = find_arms((programs.primary, programs.previous), self.told())
        return found if isinstance(found, ProgramArms) else None

    async def _begin(self) -> None:
        adapters, where = self._adapters, self.where()
        asked, primary = adapters.programs.asked, adapters.programs.primary
        if asked is not None and primary is None:
            await self.decide(RejectProgram(program=asked), "no program answers by default any more")
        if asked is None or primary is None:
            self.stop()
            return
        if not may_begin(adapters, where.at):
            return
        found = self._find_arms(adapters.programs.entries[asked].decision, (asked, primary))
        if isinstance(found, ProgramArms):
            verdict = self._verdict(adapters.programs.entries[asked].decision, found)
            if verdict is not None and not verdict.passed:
                await self.decide(RejectProgram(program=asked), verdict.reason, evidence=verdict.evidence)
            elif verdict is not None:
                move = program_canary(self.arms.agent_id, found, adapters, self.policy, where)
                await self.decide(move, f"an operator asked for it: {verdict.reason}", evidence=verdict.evidence)
        elif found is not None:
            await self.decide(RejectProgram(program=asked), found)

    def _verdict(self, decision: int, arms: ProgramArms) -> GateVerdict | None:
        """Return the verdict of the gate, once it has one of just these."""
        if self._at_gate is None or self._at_gate[:2] != (decision, arms):
            self.stop()
            self._at_gate = decision, arms, asyncio.create_task(self._asked_gate(arms))
        at_gate = self._at_gate[2]
        return at_gate.result() if at_gate.done() else None

    async def _asked_gate(self, arms: ProgramArms) -> GateVerdict:
        while True:
            name = arms.treatment.name
            try:
                verdict = await self.gate(arms)
                self.pauses.forget(name)
                return verdict
            except Exception as error:
                pause = self.pauses.note_failure(name, str(error))
                log.error(
                    "gate", f"{name} could not be asked, it is tried again in {pause:.0f} s: {error}", exc_info=error
                )
                await asyncio.sleep(pause)

    def stop(self) -> None:
        if self._at_gate is not None:
            self.pauses.forget(self._at_gate[1].treatment.name)
            self._at_gate[2].cancel()
            self._at_gate = None

    def _find_arms(self, decision: int, names: tuple[str, str]) -> ProgramArms | str | None:
        """None: wait on. A sentence: it was waited for long enough."""
        found = find_arms(names, self.told())
        if isinstance(found, ProgramArms):
            self._waits = None
            return found
        if self._waits is None or self._waits[0] != decision:
            self._waits = decision, self.seconds()
        return found if self.seconds() - self._waits[1] >= RUNNERS_READY_S else None


def find_arms(names: tuple[str, str], told: Sequence[Declared]) -> ProgramArms | str:
    """Return treatment and control as all runners have them; else a sentence that says what is in the way."""
    if not told:
        return "no runner tells of its programs"
    found = []
    for name in names:
        revisions = {one.get(name) for one in told}
        if revisions == {None}:
            there = sorted({known for one in told for known in one})
            return f"runners have no program {name}: they have {', '.join(there) or 'none'}"
        if len(revisions) > 1:
            return f"not all {len(told)} runners have the same program {name}"
        found.append(ProgramRevision(name=name, revision=str(revisions.pop())))
    return ProgramArms(treatment=found[0], control=found[1])


def difference(arms: ProgramArms, told: Sequence[Declared]) -> str | None:
    """Say what a runner has of these programs that is not what is compared; None as long as none says so."""
    for one in (arms.treatment, arms.control):
        others = {declared.get(one.name) for declared in told} - {one.revision}
        if others == {None}:
            return f"a runner no longer has the program {one.name}"
        if others:
            return f"program {one.name} was changed: a runner has another revision of it than was compared"
    return None
