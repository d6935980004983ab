"""The steps of a task's life, and what hangs on it: at which failpoints of which service a fault can begin."""

from __future__ import annotations

from dataclasses import dataclass

from tests.acceptance.fleet import AGENT, ORCHESTRATOR, SCORER

HOPS = ("received", "worked", "published", "confirmed", "before-ack")


@dataclass(frozen=True, slots=True)
class Step:
    """`queue`: where messages are that the step takes, or that tell of it."""

    name: str
    service: str
    failpoints: tuple[str, ...]
    queue: str


RETENTION, PROMOTION = "retention", "promotion"
"""The first comes at every start, and every 30 s after it; the second when a new adapter does."""
STEPS = (
    Step("admission", ORCHESTRATOR, ("admitted", "received", "written", "fsynced"), "tasks"),
    Step("generation", AGENT, HOPS, "work.small"),
    Step("scoring", SCORER, HOPS, "responses"),
    Step("settlement", ORCHESTRATOR, ("settled", "worked", "written", "fsynced"), "rewards"),
    Step("telling", ORCHESTRATOR, ("telling", "published", "confirmed", "before-ack"), "results"),
    Step(RETENTION, ORCHESTRATOR, ("start-moved", "ids-kept", "segment-removed"), "rewards"),
    Step(
        PROMOTION,
        ORCHESTRATOR,
        ("decision-written", "decision-synced", "registry-written", "registry-renamed"),
        "adapters.reports",
    ),
)
