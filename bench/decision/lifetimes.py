"""One candidate after the other in the same fleet: what errors and small steps add up to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.decision.simulate import plan_for, units_at
from bench.decision.streams import Scenario, streams
from bench.decision.twin import PROMOTE, Twin
from ratchet.experiments.effect import factor_of
from schemas.records.evidence import Change


CHUNK = 1000


@dataclass(frozen=True)
class Lifetime:
    """`promotions[k]`: share of the fleets that promoted k candidates."""

    promotions: tuple[float, ...]

    @property
    def any(self) -> float:
        return 1.0 - self.promotions[0]

    def more_than(self, count: int) -> float:
        return float(sum(self.promotions[count + 1 :]))


def lifetimes(scenario: Scenario, candidates: int, fleets: int, seed: int) -> Lifetime:
    """So many candidates in a row, each as the scenario says against the primary that its fleet then has."""
    rng = np.random.default_rng(seed)
    promoted = [_chain(scenario, candidates, min(CHUNK, fleets - start), rng) for start in range(0, fleets, CHUNK)]
    counts = np.bincount(np.concatenate(promoted), minlength=candidates + 1)
    return Lifetime(tuple(float(count) / fleets for count in counts))


def _chain(scenario: Scenario, candidates: int, fleets: int, rng: np.random.Generator) -> np.ndarray:
    since_base, promoted = [Change()] * fleets, np.zeros(fleets, dtype=np.int64)
    for nth in range(1, candidates + 1):
        twin = Twin([plan_for(scenario, nth=nth, since_base=change) for change in since_base])
        stream = streams(scenario, fleets, rng)
        for index in range(scenario.units):
            candidate = stream.draws[:, index] < twin.share
            twin.observe(units_at(stream, index, candidate, twin.share))
        for fleet in np.flatnonzero(twin.verdict == PROMOTE):
            promoted[fleet] += 1
            since_base[fleet] = since_base[fleet].and_then(_change(twin.effects_at_verdict[fleet]))
    return promoted


def _change(effects: np.ndarray) -> Change:
    """As `ratchet.experiments.metrics.ExperimentMetrics.change` has it."""
    score, success, length, latency, answered = map(float, effects)
    return Change(
        score=score, success=success, refused=-answered, length=factor_of(length), latency=factor_of(latency)
    )
