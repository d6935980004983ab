"""Keeps track of an agent's replicas and of what each has loaded, from their reports. The clock is the caller's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ratchet.bus.protocol import Bus
from ratchet.bus.topology import events_topic
from ratchet.service.telemetry import Log
from schemas.messages.adapter_event import AdapterEvent, AdapterMove, AdapterReport, ServedAdapter
from schemas.messages.base import BaseModelIdentity, Metadata
from schemas.messages.work import BASE_VERSION, Work
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.promotion.arms import Arms

log = Log("swap")


class SwapClock:
    """One agent's."""

    def __init__(self, agent_id: str) -> None:
        self._agent_id = agent_id
        self._version: str | None = None
        self._at = datetime.min

    def began(self, version: str, at: datetime) -> None:
        """It was decided, by proof or by hand, that this version is the primary."""
        self._version = version
        self._at = at

    def note_answer(self, work: Work, lines: Sequence[Interaction]) -> None:
        """A task was closed; the first that was admitted after the decision, for the new primary, stops the clock."""
        if work.arm.adapter_version != self._version or work.admitted_at < self._at:
            return
        latencies = lines[0].latencies
        admitted = (work.admitted_at - self._at).total_seconds()
        seconds = admitted + latencies.queue_s + latencies.generate_s
        metrics.swap_seconds.labels(self._agent_id).set(seconds)
        log.info(
            "swapped", f"{self._version} gave its first answer {seconds:.2f} s after the decision", seconds=seconds
        )
        self._version = None


@dataclass(eq=False)
class Announcer:
    """One agent's. What must be loaded: all in traffic, all that still answers, and what is being validated."""

    arms: Arms
    bus: Bus
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._last = datetime.min.replace(tzinfo=UTC)
        self.revision = 0
        self.validating: str | None = None

    def wanted_adapters(self) -> tuple[ServedAdapter, ...]:
        adapters = self.arms.adapters
        versions = set(adapters.in_traffic) | self.arms.answering | {self.validating or BASE_VERSION}
        entries = (adapters.versions[version] for version in sorted(versions - {BASE_VERSION}))
        return tuple(
            ServedAdapter(version=entry.version, sha256=entry.sha256) for entry in entries if entry.sha256 is not None
        )

    async def announce(
        self, event: AdapterMove = "standing", version: str | None = None, reason: str | None = None
    ) -> datetime:
        """The announcement's moment, after that of every one before, though the clock be set back. Raises BusError."""
        adapters = self.arms.adapters
        self._last = at = max(self.clock(), self._last + timedelta(microseconds=1))
        message = AdapterEvent(
            agent_id=self.arms.agent_id,
            event=event,
            metadata=Metadata(timestamp=at, source="orchestrator"),
            version=version,
            reason=reason,
            revision=self.revision,
            primary=adapters.primary,
            candidate=adapters.candidate,
            adapters=self.wanted_adapters(),
        )
        topic = events_topic(self.arms.agent_id)
        message_id = f"{self.arms.agent_id}/{self.revision}/{event}"
        await self.bus.broadcast(topic, message.encode(), type=AdapterEvent.TYPE, message_id=message_id)
        return at


FORGET_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class RollCall:
    """An announcement, by its own moment and by the clock of the reports, to be answered by who is there."""

    announced_at: datetime
    at: float

    def is_answered_by(self, report: AdapterReport, heard_at: float) -> bool:
        """True if this report answers it. One that does not say what it answers counts if it came since."""
        if report.announced_at is None:
            return heard_at >= self.at
        return report.announced_at >= self.announced_at


@dataclass(frozen=True, slots=True)
class Loading:
    """The progress of loading a version on all replicas."""

    loaded: int
    refused: dict[str, str]
    """Replica → why it can't load it."""


class Replicas:
    """One agent's. A replica that has not reported for a while is gone."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[AdapterReport, float]] = {}

    def record(self, report: AdapterReport, at: float) -> None:
        """`at` in seconds of any one clock."""
        self._reports[report.replica] = (report, at)

    @property
    def bases(self) -> list[BaseModelIdentity]:
        """The base models of those that say theirs: more than one while some were given another."""
        newest = max((at for _, at in self._reports.values()), default=0.0)
        there = (report.base for report, at in self._reports.values() if newest - at < FORGET_AFTER_S)
        return [base for base in there if base is not None]

    def reports(self, now: float) -> list[AdapterReport]:
        """The newest of each replica that is there."""
        return [report for report, at in self._reports.values() if now - at < FORGET_AFTER_S]

    def loading(self, version: str, now: float, call: RollCall | None = None) -> Loading:
        """Tell which replicas loaded or refused a version, of those that answered the call, or of all recent ones."""
        self._reports = {name: kept for name, kept in self._reports.items() if now - kept[1] < FORGET_AFTER_S}
        reports = [report for report, at in self._reports.values() if call is None or call.is_answered_by(report, at)]
        return Loading(
            loaded=sum(version in report.loaded for report in reports),
            refused={report.replica: report.refused[version] for report in reports if version in report.refused},
        )
