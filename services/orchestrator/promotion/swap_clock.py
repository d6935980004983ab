"""Measures how long a swap takes: from the decision for a new primary to the first answer that it gave."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ratchet.service.telemetry import Log
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator import metrics

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
