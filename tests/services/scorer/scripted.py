"""A strategy that answers as scripted: the double of every real one."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.messages.reward import SampleScore, ScorerIdentity
from services.scorer.strategies.strategy import ScoringRequest

OK = SampleScore(score=0.5)
BROKEN = SampleScore(score=None, status="infra_fail", reason="server gone")
SLOW = SampleScore(score=None, status="timeout", reason="too slow")
UNKNOWN = SampleScore(score=None, status="unscorable", reason="no reference")


class Scripted:
    """Gives `script` for every request, or raises it; keeps the requests."""

    def __init__(
        self,
        script: Sequence[SampleScore] | Exception,
        identity: ScorerIdentity | None = None,
        trouble: str | None = None,
    ) -> None:
        self.script = script
        self.identity = identity or ScorerIdentity(id="scripted", revision="7", rubric_sha256=None)
        self.requests: list[ScoringRequest] = []
        self.running = False
        self._trouble = trouble

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False

    def trouble(self) -> str | None:
        return self._trouble

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        self.requests.append(request)
        if isinstance(self.script, Exception):
            raise self.script
        return list(self.script)
