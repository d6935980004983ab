"""The validation gate: what a new adapter must show before any traffic. It checks, loads and asks; it decides nothing.

In order: the folder is whole and fit for the engines; then it is announced, and every replica that is there has loaded
it, which ends with a first answer; and the shadow replay proves no harm (shadow_gate.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta

from ratchet.adapters.check import base_fault
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.verification import entry_faults
from ratchet.bus.protocol import Bus
from ratchet.bus.retry_policy import pause_s
from ratchet.bus.topology import work_queue
from ratchet.service.errors import AdapterError, OtherModel, one_line
from schemas.api.status import HeldUp
from schemas.messages.adapter_event import AdapterMove
from schemas.messages.base import BaseModelIdentity
from schemas.records.registry import AdapterEntry
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.promotion.replicas import Announcer, Replicas, RollCall
from services.orchestrator.promotion.shadow_gate import GateVerdict, ShadowGate
from services.orchestrator.settings import OrchestratorSettings

FIRST_S = 30.0
LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Pause:
    """`until` on the steady clock; `held_up` says it to people, by the clock on the wall."""

    until: float
    held_up: HeldUp


class Pauses:
    """One agent's, by the name of an adapter's version or of a program."""

    def __init__(
        self, clock: Callable[[], datetime], seconds: Callable[[], float], chance: Callable[[], float] = random.random
    ) -> None:
        """`chance`: a number in [0, 1), of which each pause has its random part."""
        self._clock = clock
        self._seconds = seconds
        self._chance = chance
        self._of: dict[str, Pause] = {}

    def note_failure(self, name: str, why: str) -> float:
        """Seconds until it is to be tried again."""
        tries = 1 + (self._of[name].held_up.tries if name in self._of else 0)
        length = pause_s(tries, first_s=FIRST_S, cap_s=LONGEST_S, random=self._chance())
        again_at = self._clock() + timedelta(seconds=length)
        held_up = HeldUp(name=name, reason=one_line(why), tries=tries, again_at=again_at)
        self._of[name] = Pause(self._seconds() + length, held_up)
        return length

    def is_over(self, name: str) -> bool:
        """Tell whether the pause is over; True too without a failure."""
        return name not in self._of or self._seconds() >= self._of[name].until

    def forget(self, name: str) -> None:
        """Forget the pauses of a candidate that was judged."""
        self._of.pop(name, None)

    def among(self, names: Collection[str]) -> list[HeldUp]:
        return [self._of[name].held_up for name in names if name in self._of]


POLL_EVERY_S = 0.2


@dataclass(eq=False)
class Gate:
    """One agent's.

    `programs_answer`: whether runners take the agent's tasks.
    """

    arms: Arms
    announcer: Announcer
    replicas: Replicas
    bus: Bus
    shadow: ShadowGate
    settings: OrchestratorSettings
    _: KW_ONLY
    programs_answer: Callable[[], bool]
    seconds: Callable[[], float]

    async def validate(self, entry: AdapterEntry) -> GateVerdict:
        """May take as long as the time-out and the replay's deadline.

        Raises OtherModel, BusError, DiskFull and NotJudged: not the version's fault.
        """
        self._check_model(entry)
        try:
            limits = AdapterLimits(max_rank=self.settings.adapter_max_rank, base=self._bases[0])
            folder = self.settings.adapters_dir / self.arms.agent_id / entry.version
            faults = await asyncio.to_thread(entry_faults, folder, entry, limits)
            if faults:
                return GateVerdict(False, one_line(f"{entry.version} is refused: {'; '.join(faults)}"), {})
            self.announcer.validating = entry.version
            await self._load_everywhere(entry)
            return await self.shadow.judge(entry, by_programs=self.programs_answer())
        except AdapterError as error:
            return GateVerdict(False, one_line(str(error)), {})
        finally:
            self.announcer.validating = None

    def other_model(self, entry: AdapterEntry) -> str | None:
        """Say why the version is none for this agent: all its replicas, or some, run another model than its own."""
        return next(filter(None, (base_fault(entry.base, base) for base in self._bases)), None)

    def _check_model(self, entry: AdapterEntry) -> None:
        if (why := self.other_model(entry)) is not None:
            raise OtherModel(why)

    @property
    def _bases(self) -> Sequence[BaseModelIdentity | None]:
        """Return what replicas run; where they can't tell (a vllm server can't), what the primary was trained on."""
        adapters = self.arms.adapters
        return self.replicas.bases or [adapters.versions[adapters.primary].base]

    async def _load_everywhere(self, entry: AdapterEntry) -> None:
        """Raises AdapterError where a replica refuses it, or does not have it in time, and OtherModel.

        The broker tells how many replicas there are, not who. So that none that died stands in for one that has not
        loaded it, only who answers a roll call counts, which is made again whenever their number has changed.
        """
        version, timeout_s = entry.version, self.settings.validation_timeout_s
        deadline = self.seconds() + timeout_s
        call: RollCall | None = None
        called = 0
        while True:
            replicas = await self._count()
            if call is None or replicas != called:
                event: AdapterMove = "validating" if call is None else "standing"
                announced_at = await self.announcer.announce(event, version)
                call, called = RollCall(at=self.seconds(), announced_at=announced_at), replicas
            loading = self.replicas.loading(version, self.seconds(), call)
            self._check_model(entry)  # which they may say only now
            if loading.refused:
                who, why = next(iter(loading.refused.items()))
                raise AdapterError(f"replica {who} can't load it: {why}")
            if replicas and loading.loaded >= replicas:
                return
            if self.seconds() > deadline:
                raise AdapterError(
                    f"only {loading.loaded} of {replicas} replicas of agent {self.arms.agent_id} had loaded it after "
                    f"{timeout_s:g} s: look at their logs, then publish it again"
                )
            await asyncio.sleep(POLL_EVERY_S)

    async def _count(self) -> int:
        """Count the replicas: who takes the agent's tasks, or, where those are runners, who was heard lately."""
        if self.programs_answer():
            return len(self.replicas.reports(self.seconds()))
        return (await self.bus.state(work_queue(self.arms.agent_id))).consumers
