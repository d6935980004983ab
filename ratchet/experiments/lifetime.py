"""The part that one experiment may use of what all experiments of an agent may use together. Pure.

Errors: the n-th candidate is promoted at an e-value of 1/αₙ with αₙ = 2α/(n(n + 1)). These sum to 2α, so by the union
bound, with probability 1 − 2α at least, no candidate that is no better is ever promoted, however many there will be
(alpha spending; Foster and Stine, "α-investing", JRSS B 70, 2008, compare it with rules that win some back). The n-th
threshold grows like n², the evidence for a better candidate exponentially with its units.

A watch begins anew after so many units, so the k-th turn over one primary has α/(k(k + 1)): these sum to α. Canary and
watch have two tests of harm, of the weighted metrics and of the types, which share their α (type_veto.py).

Limits: what the primary has changed since v1.0.0 is taken off what a candidate may change. It is measured beside v1.0.0
itself in the shadow replay of each candidate, on prompts that both answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from ratchet.experiments.effect import loss_of
from ratchet.experiments.type_veto import threshold_of
from schemas.records.evidence import Change, ExperimentPlan, Limits, RampStep, ReplayedEvidence, ReplayRecord
from schemas.records.registry import Entry

LEAST_TOLERANCE = 0.01
MOST = 0.49
"""Shares and scores lie in [0, 1]: no margin is wider than half of it."""

FIRST_UNITS = 450
"""Units of the primary in a watch, before the holdback falls to a half; it waits while the e-value of harm is 1.2 or
more.
"""


def alpha_of(alpha: float, nth: int) -> float:
    """The part of the n-th candidate. The first has all of `alpha`."""
    return 2.0 * alpha / (nth * (nth + 1))


def candidates_tried(entries: Iterable[Entry]) -> int:
    """Canaries of an agent that have ended, however they did; give it its versions and its programs."""
    return sum(outcome.kind == "canary" for entry in entries for outcome in entry.outcomes)


def limits_left(limits: Limits, since_base: Change) -> Limits:
    """Return what is left of the fleet's limits, which are against v1.0.0: what a candidate may be against this
    primary.

    Never more than the whole limit, though the primary be better than v1.0.0: each step is limited too.
    """
    return Limits(
        success=max(-MOST, min(limits.success, limits.success + since_base.success)),
        refused=max(-MOST, min(limits.refused, limits.refused - since_base.refused)),
        length=min(limits.length, limits.length / since_base.length),
        latency=min(limits.latency, limits.latency / since_base.latency),
        since_base=since_base,
    )


def measured_since_base(carried: Change, replay: ReplayRecord | None) -> Change:
    """Return what the primary has changed since v1.0.0: as the replay measured it beside v1.0.0, on the same prompts.

    `carried`: what its experiments estimated. It holds for what a replay does not measure, latency, and where too few
    prompts were left. Estimates that are multiplied from promotion to promotion drift: each was selected by passing.
    """
    if replay is None or replay.since_base is None:
        return carried
    return replay.since_base.model_copy(update={"latency": carried.latency})


def limit_plan(plan: ExperimentPlan, *, nth: int, since_base: Change) -> ExperimentPlan:
    """The fleet's plan for this candidate: its part of the errors, and what is left of the limits.

    A size that is proved beyond what is left is harm. A primary worse than v1.0.0 must be beaten by as much.
    """
    if plan.limits is None:
        return plan
    left = limits_left(plan.limits, since_base)
    if plan.goal == "cheaper":
        left = left.model_copy(update={"length": min(left.length, 1.0)})
    alpha = alpha_of(plan.alpha, nth)
    return ExperimentPlan.model_validate(
        plan.model_dump()
        | {
            "limits": left,
            "nth": nth,
            "alpha": alpha,
            "promote_at": 1.0 / alpha,
            "min_gain": min(MOST, max(plan.min_gain, plan.min_gain - since_base.score)),
            "length_tolerance": min(plan.length_tolerance, max(LEAST_TOLERANCE, loss_of(left.length))),
            "latency_tolerance": min(plan.latency_tolerance, max(LEAST_TOLERANCE, loss_of(left.latency))),
        }
    )


def after_replay(plan: ExperimentPlan, replayed: ReplayedEvidence | None, better_at: float) -> ExperimentPlan:
    """The plan with what the replay proved. A candidate that was proved better begins at the top of the ramp.

    `better_at`: the e-value at which the replay takes a gain for proved.
    """
    if replayed is None:
        return plan
    is_better = (replayed.score or 0.0) >= better_at  # the ramp protects users; the proof does not need it
    return plan.model_copy(update={"replayed": replayed, "ramp": plan.ramp[-1:] if is_better else plan.ramp})


def watch_plan(
    experiment_id: str,
    fleet_s: ExperimentPlan,
    *,
    share: float,
    nth: int,
    against_base: bool = False,
    audit_share: float = 0.0,
) -> ExperimentPlan:
    """The n-th turn of the watch over a primary: it never promotes, and rolls back at its part of the errors.

    `share` of the traffic is held back, and twice as much at first. Beside v1.0.0 the limits themselves are what must
    not be exceeded; beside the version before it, the fleet's tolerances. Its units are all the traffic
    there is, so it has an `audit_share` of its own.
    """
    alpha = alpha_of(fleet_s.alpha, nth) / 2.0
    ramp = tuple(
        RampStep(share=1.0 - held_back, candidate_units=FIRST_UNITS, open_candidates=fleet_s.max_units)
        for held_back in (min(2.0 * share, 0.5), share)
    )
    changed: dict[str, object] = {
        "experiment_id": experiment_id,
        "kind": "watch",
        "ramp": ramp,
        "nth": nth,
        "alpha": alpha,
        "roll_back_at": threshold_of(alpha),
        "served": None,
        "audit": fleet_s.audit.model_copy(update={"share": audit_share}) if fleet_s.audit and audit_share else None,
    }
    if (limits := fleet_s.limits) is not None:
        changed |= {"length_tolerance": loss_of(limits.length), "latency_tolerance": loss_of(limits.latency)}
        if against_base:
            changed |= {"success_tolerance": limits.success, "refused_tolerance": limits.refused}
    return ExperimentPlan.model_validate(fleet_s.model_dump() | changed)
