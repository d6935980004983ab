"""Keeps track of an agent's replicas and of what each has loaded, from their reports. The clock is the caller's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from schemas.messages.adapter_report import AdapterReport
from schemas.messages.base import BaseModelIdentity

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
        """On those that answered the call or a later one; without one, also on those that died a moment ago."""
        self._reports = {name: kept for name, kept in self._reports.items() if now - kept[1] < FORGET_AFTER_S}
        reports = [report for report, at in self._reports.values() if call is None or call.is_answered_by(report, at)]
        return Loading(
            loaded=sum(version in report.loaded for report in reports),
            refused={report.replica: report.refused[version] for report in reports if version in report.refused},
        )
