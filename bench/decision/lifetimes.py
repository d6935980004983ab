"""One candidate after the other in the same fleet, and the watch over a primary.

What the errors and the small steps of single experiments add up to, and whether what slipped through is found later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bench.decision.simulate import POLICY, plan_for, quantiles, units_at
from bench.decision.streams import Scenario, streams
from bench.decision.twin import PROMOTE, ROLL_BACK, Twin
from ratchet.experiments.lifetime import watch_plan
from schemas.records.evidence import Change, ExperimentPlan

CHUNK, FEWER = 1000, 250
TURN = POLICY.canary.max_units
"""Units of one turn of the watch."""


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
    """Simulate so many candidates in a row, each as in the scenario against the primary that its fleet then has."""
    rng = np.random.default_rng(seed)
    promoted = [_chain(scenario, candidates, min(CHUNK, fleets - start), rng) for start in range(0, fleets, CHUNK)]
    counts = np.bincount(np.concatenate(promoted), minlength=candidates + 1)
    return Lifetime(tuple(float(count) / fleets for count in counts))


@dataclass(frozen=True)
class Watched:
    """The share of fleets whose watch demoted the primary, and the tasks until then (median, 90 %)."""

    demoted: float
    tasks: tuple[float, float] | None


def simulate_watch(scenario: Scenario, fleets: int, seed: int) -> Watched:
    """Watch the scenario's candidate as a primary while its primary is held back, for as many tasks as it has units."""
    rng = np.random.default_rng(seed)
    tasks = np.concatenate([_until_demoted(scenario, min(FEWER, fleets - at), rng) for at in range(0, fleets, FEWER)])
    found = tasks[np.isfinite(tasks)]
    return Watched(len(found) / fleets, quantiles(found) if len(found) else None)


def _until_demoted(scenario: Scenario, fleets: int, rng: np.random.Generator) -> np.ndarray:
    """Return the tasks until each fleet's primary is demoted, over successive turns of the watch; infinite: never."""
    tasks = np.full(fleets, np.inf)
    for nth, start in enumerate(range(0, scenario.units, TURN), 1):
        turn = replace(scenario, units=min(TURN, scenario.units - start), begins=max(0, scenario.begins - start))
        plan = watch_plan("watch", POLICY.canary, share=POLICY.watch_share, nth=nth)
        twin = _play([plan] * fleets, turn, rng)
        new = (twin.verdict == ROLL_BACK) & np.isinf(tasks)
        tasks[new] = start + twin.units_at_verdict[new]
    return tasks


def _play(plans: list[ExperimentPlan], scenario: Scenario, rng: np.random.Generator) -> Twin:
    twin, stream = Twin(plans, len(scenario.levels)), streams(scenario, len(plans), rng)
    for index in range(scenario.units):
        candidate = stream.draws[:, index] < twin.share
        twin.observe(units_at(stream, index, candidate, twin.share))
    return twin


def _chain(scenario: Scenario, candidates: int, fleets: int, rng: np.random.Generator) -> np.ndarray:
    since_base, promoted = [Change()] * fleets, np.zeros(fleets, dtype=np.int64)
    for nth in range(1, candidates + 1):
        twin = _play([plan_for(scenario, nth=nth, since_base=change) for change in since_base], scenario, rng)
        for fleet in np.flatnonzero(twin.verdict == PROMOTE):
            promoted[fleet] += 1
            since_base[fleet] = since_base[fleet].and_then(_change(twin.effects_at_verdict[:, fleet]))
    return promoted


def _change(effects: np.ndarray) -> Change:
    """Return the change as `ratchet.experiments.metrics.ExperimentMetrics.change` does."""
    score, success, _, length, latency, answered, _ = map(float, effects)
    return Change(score=score, success=success, refused=-answered, length=length, latency=latency)
