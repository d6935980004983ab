"""The vectorised twin decides as the product does: asserted run by run, number by number."""

from __future__ import annotations

from itertools import count

import numpy as np

from bench.decision.simulate import plan_for, units_at
from bench.decision.streams import Scenario, Streams, streams
from bench.decision.twin import ANSWERED, AUDIT, BOUNDS, LATENCY, LENGTH, PROMOTE, ROLL_BACK, SCORE, SUCCESS, Twin
from ratchet.experiments.assignment import Assignment
from ratchet.experiments.experiment import Experiment
from ratchet.experiments.lifetime import after_replay
from ratchet.experiments.unit import Audit, Enrolment, Outcome
from schemas.records.evidence import ReplayedEvidence, Verdict

VERDICTS = {0: Verdict.CONTINUE, PROMOTE: Verdict.PROMOTE, ROLL_BACK: Verdict.ROLL_BACK, 3: Verdict.ABORT}
TOLERANCE = 1e-9
REPLAYED = ReplayedEvidence(
    prompts=40,
    score=25.0,
    success=3.0,
    bounds=9.0,
    length=0.4,
    refused=2.0,
    usual_latency_s=0.8,
    types={"0": 5, "2": 9},
)


def assert_twin_equals_product(runs: int = 4) -> int:
    """Returns how many units were compared. Raises AssertionError naming the first difference."""
    compared = 0
    for effect, unscored, longer, audited in ((0.0, 0.0, 1.0, 0.0), (0.05, 0.1, 1.1, 0.5), (-0.1, 0.3, 1.3, 0.2)):
        scenario = Scenario(
            "equality",
            effect=effect,
            success=0.99,
            unscored=unscored,
            audited=audited,
            truth=effect,
            longer=longer,
            refuses=unscored / 10,
            units=600,
        )
        stream = streams(scenario, runs, np.random.default_rng(7))
        compared += compare(scenario, stream, runs)
        compared += compare(scenario, stream, runs, REPLAYED)
    return compared


def compare(scenario: Scenario, stream: Streams, runs: int, replayed: ReplayedEvidence | None = None) -> int:
    """`replayed`: what a shadow replay proved before."""
    plan = after_replay(plan_for(scenario), replayed, 20.0)
    plan = plan.model_copy(update={"max_units": scenario.units + 1})
    twin = Twin([plan] * runs, len(scenario.levels))
    products = [Experiment(plan) for _ in range(runs)]
    live, compared = [True] * runs, 0
    for index in range(scenario.units):
        candidate, share = stream.draws[:, index] < twin.share, twin.share
        units = units_at(stream, index, candidate, share)
        twin.observe(units)
        for run in [run for run in range(runs) if live[run]]:
            product = products[run]
            assert product.share == share[run], f"share {product.share} and {share[run]} at unit {index} of run {run}"
            feed(product, index, bool(candidate[run]), stream, run)
            same(product, twin, index, run)
            live[run] = not VERDICTS[int(twin.verdict[run])].final
            compared += 1
    return compared


def feed(product: Experiment, index: int, candidate: bool, stream: Streams, run: int) -> None:
    share = product.share
    assignment = Assignment(is_candidate=candidate, propensity=share if candidate else 1 - share)
    stratum = str(stream.stratum[run, index])
    names = (f"{index}-{number}" for number in count())
    unit_id = next(name for name in names if product.audits(name) == stream.is_audited[run, index])
    product.enrol(Enrolment(index, unit_id, False, assignment, stratum, float(index)))
    product.audit(index, Audit(float(stream.audit[candidate][run, index]), 1.0, ("auditor",)))
    scored = float(stream.success[candidate][run, index] * stream.scored[candidate][run, index])
    outcome = Outcome(
        succeeded=scored > 0,
        score=float(stream.score[candidate][run, index]) if scored else None,
        scored=scored,
        length=float(stream.length[candidate][run, index]),
        latency_s=float(stream.latency[candidate][run, index]),
        refused=float(stream.refused[candidate][run, index]),
    )
    product.observe(index, outcome)


def same(product: Experiment, twin: Twin, index: int, run: int) -> None:
    evidence = product.evidence
    pairs = {
        "gain in score": (evidence.gain_score, twin.gain[SCORE, run]),
        "gain in success": (evidence.gain_success, twin.gain[SUCCESS, run]),
        "bounds": (evidence.gain_bounds or 0.0, twin.gain[BOUNDS, run]),
        "length kept": (evidence.kept_length or 0.0, twin.gain[LENGTH, run]),
        "latency kept": (evidence.kept_latency or 0.0, twin.gain[LATENCY, run]),
        "refusals kept": (evidence.kept_refused or 0.0, twin.gain[ANSWERED, run]),
        "no loss by the auditor": (evidence.gain_audit or np.inf, twin.gain[AUDIT, run]),
        "harm": (evidence.harm, twin.harm[run]),
        "harm in a type": (evidence.harm_type or 0.0, twin.types.harm[run]),
        "a type is awaited": (float(evidence.awaited_type is not None), float(twin.types.awaited[run])),
    }
    for name, (ours, theirs) in pairs.items():
        assert ours == theirs or abs(ours - theirs) <= TOLERANCE * max(ours, 1e-300), (
            f"{name}: {ours} and {theirs}, unit {index}, run {run}"
        )
    verdict = VERDICTS[int(twin.verdict[run])]
    final = product.final.verdict if product.final else Verdict.CONTINUE
    assert final is verdict, f"{final} and {verdict} at unit {index} of run {run}"
