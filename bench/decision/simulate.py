"""One scenario: the same stream to the product's decision and to its rivals, unit by unit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.decision.rivals import Arms, GrowthBook, Rival, TTest
from bench.decision.streams import Floats, Scenario, Streams, streams
from bench.decision.twin import CONTINUE, DAY_S, PROMOTE, ROLL_BACK, Twin, Units
from ratchet.experiments.lifetime import limit_plan
from ratchet.experiments.served import Z95
from schemas.records.evidence import CANARY_RAMP, AuditRule, Change, ExperimentPlan, RampStep
from services.orchestrator.promotion.experiment_transitions import plan_of_programs
from services.orchestrator.settings import OrchestratorSettings

CHUNK = 500
UNCHANGED = Change()
POLICY = OrchestratorSettings().experiments


@dataclass(frozen=True)
class Outcome:
    """Results of one method on one scenario. Quantiles are over the runs with that verdict; None if there are none."""

    promoted: float
    rolled_back: float
    units_to_promote: tuple[float, float] | None
    """Median and 90 % quantile over all runs, those without a verdict counted at the end of the stream."""
    candidates_to_roll_back: tuple[float, float] | None


def plan_for(
    scenario: Scenario, *, nth: int = 1, since_base: Change = UNCHANGED, judged_again: bool = False
) -> ExperimentPlan:
    """Return the plan of a default fleet's n-th candidate. `judged_again`: with second verdicts."""
    policy = POLICY if scenario.goal == "better" else OrchestratorSettings(promote_goal=scenario.goal).experiments
    canary = plan_of_programs("policy", policy) if scenario.is_program else policy.canary
    by_share = {step.share: step for step in CANARY_RAMP}
    ramp = tuple(
        by_share.get(share, RampStep(share=share, candidate_units=0, open_candidates=1)) for share in scenario.ramp
    )
    audit = AuditRule(share=scenario.audited) if scenario.audited else None
    changed = {
        "experiment_id": scenario.name,
        "ramp": ramp,
        "max_units": scenario.units,
        "audit": audit,
        "min_age_s": scenario.days * DAY_S,
        "served": canary.served if judged_again else None,
    }
    return limit_plan(canary.model_copy(update=changed), nth=nth, since_base=since_base)


def simulate(
    scenario: Scenario,
    runs: int,
    seed: int,
    *,
    nth: int = 1,
    rivals: bool = True,
) -> dict[str, Outcome]:
    rng = np.random.default_rng(seed)
    sizes = [min(CHUNK, runs - start) for start in range(0, runs, CHUNK)]
    parts = [play(scenario, streams(scenario, size, rng), nth, rivals=rivals) for size in sizes]
    names = ("ratchet", "t-test", "growthbook")
    return {name: summary(scenario, [part[at] for part in parts]) for at, name in enumerate(names[: len(parts[0])])}


def play(scenario: Scenario, stream: Streams, nth: int = 1, *, rivals: bool = True) -> list[Twin | Rival]:
    runs = stream.draws.shape[0]
    twin, arms = Twin([plan_for(scenario, nth=nth)] * runs, len(scenario.levels)), Arms(runs)
    others: list[Rival] = [TTest(runs), GrowthBook(runs)] if rivals else []
    for index in range(scenario.units):
        candidate = stream.draws[:, index] < twin.share
        units = units_at(stream, index, candidate, twin.share)
        twin.observe(units, index / scenario.units_a_day)
        if not rivals:
            if (twin.verdict != CONTINUE).all():
                break
            continue
        tasks = stream.tasks[:, index]
        arms.add(candidate, tasks, units.score * tasks, pick_arm(stream.task_squares, index, candidate))
        for rival in others:
            rival.look(arms, index + 1, twin.candidates)
    return [twin, *others]


def units_at(stream: Streams, index: int, candidate: NDArray[np.bool_], share: Floats) -> Units:
    return Units(
        candidate=candidate,
        share=share,
        stratum=stream.stratum[:, index],
        score=pick_arm(stream.score, index, candidate),
        scored=pick_arm(stream.success, index, candidate) * pick_arm(stream.scored, index, candidate),
        length=pick_arm(stream.length, index, candidate),
        latency=pick_arm(stream.latency, index, candidate),
        refused=pick_arm(stream.refused, index, candidate),
        audit=pick_arm(stream.audit, index, candidate),
        is_audited=stream.is_audited[:, index],
    )


def pick_arm(pair: tuple[Floats, Floats], index: int, candidate: NDArray[np.bool_]) -> Floats:
    return np.where(candidate, pair[1][:, index], pair[0][:, index])


def summary(scenario: Scenario, parts: list[Twin | Rival]) -> Outcome:
    verdict = np.concatenate([part.verdict for part in parts])
    units = np.concatenate([part.units_at_verdict for part in parts])
    candidates = np.concatenate([part.candidates_at_verdict for part in parts])
    promoted, rolled_back = verdict == PROMOTE, verdict == ROLL_BACK
    return Outcome(
        promoted=float(promoted.mean()),
        rolled_back=float(rolled_back.mean()),
        units_to_promote=quantiles(np.where(promoted, units, scenario.units)) if promoted.any() else None,
        candidates_to_roll_back=quantiles(candidates[rolled_back]) if rolled_back.any() else None,
    )


def wilson(share: float, runs: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of runs (Wilson, JASA 22, 1927)."""
    square = Z95**2 / runs
    middle = (share + square / 2) / (1 + square)
    half = Z95 * math.sqrt(share * (1 - share) / runs + square / (4 * runs)) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def quantiles(values: Floats) -> tuple[float, float]:
    return float(np.median(values)), float(np.quantile(values, 0.9))
