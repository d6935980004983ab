"""The verdict: a table from evidence to a word and a sentence. Pure, and the same for a live fleet and a replay."""

from __future__ import annotations

from schemas.records.evidence import Evidence, ExperimentPlan, Verdict


def judge(plan: ExperimentPlan, evidence: Evidence) -> tuple[Verdict, str]:
    """Broken measurement goes before harm, harm before gain, gain before the budget."""
    if reason := _broken(plan, evidence):
        return Verdict.ABORT, reason
    if evidence.harm >= plan.roll_back_at:
        return Verdict.ROLL_BACK, _harm(plan, evidence)
    if (evidence.harm_type or 0.0) >= plan.roll_back_at:
        return Verdict.ROLL_BACK, _harm_in_type(plan, evidence)
    missing = _missing(plan, evidence)
    if plan.kind == "canary" and not missing:
        return Verdict.PROMOTE, (
            f"{_describe_gain(plan)}: e-value {evidence.gain_score:.4g}; success kept: {evidence.gain_success:.4g}; "
            f"{_also(evidence)} at least {plan.promote_at:g} "
            f"after {evidence.units} units, {evidence.candidate.units} of the candidate{_describe_rare_types(evidence)}"
        )
    if evidence.units >= plan.max_units:
        return _judge_spent_budget(plan, evidence, missing)
    return Verdict.CONTINUE, "; ".join(
        missing
    ) if plan.kind == "canary" else f"no harm proved, {_describe_watch(plan, evidence)}"


def _broken(plan: ExperimentPlan, evidence: Evidence) -> str | None:
    if evidence.foreign_scorer is not None:
        return (
            f"the scorer changed from {evidence.scorer} to {evidence.foreign_scorer}: their scores can't be compared; "
            "start a new experiment with the new scorer"
        )
    if evidence.foreign_auditor is not None:
        return (
            f"the auditor changed from {evidence.auditor} to {evidence.foreign_auditor}: what they say can't be "
            "compared; start a new experiment with the new auditor"
        )
    if evidence.sample_ratio >= plan.abort_at:
        return (
            f"units did not reach the arms in the logged shares: {evidence.candidate.units} candidate, "
            f"{evidence.primary.units} primary (e-value {evidence.sample_ratio:.4g} ≥ {plan.abort_at:g}); "
            "look for lost or doubled tasks before trying again"
        )
    return None


def _harm(plan: ExperimentPlan, evidence: Evidence) -> str:
    by_metric = {
        "score": evidence.harm_score,
        "success": evidence.harm_success,
        "length": evidence.harm_length,
        "latency": evidence.harm_latency,
        "refusals": evidence.harm_refused or 0.0,
        "the auditor's score": evidence.harm_audit or 0.0,
        "what users are served": evidence.harm_served or 0.0,
    }
    worst = max(by_metric, key=lambda metric: by_metric[metric])
    return (
        f"harm, most of all in {worst}: e-value {evidence.harm:.4g} ≥ {plan.roll_back_at:g} "
        f"after {evidence.candidate.units} units of the candidate"
    )


def _harm_in_type(plan: ExperimentPlan, evidence: Evidence) -> str:
    return (
        f"harm to tasks of the {_type(evidence.worst_type)}: e-value {evidence.harm_type:.4g} ≥ {plan.roll_back_at:g}, "
        f"after {evidence.candidate.units} units of the candidate"
    )


def _type(name: str | None) -> str:
    return f"type {name!r}" if name else "type that has no name"


def _describe_gain(plan: ExperimentPlan) -> str:
    return "better in score" if plan.goal == "better" else f"shorter, and its loss of score is below {-plan.min_gain:g}"


def _describe_rare_types(evidence: Evidence) -> str:
    if not evidence.rare_types:
        return ""
    return f"; too rare to be judged: {', '.join(_type(name) for name in evidence.rare_types)}"


def _missing(plan: ExperimentPlan, evidence: Evidence) -> list[str]:
    """Return what the candidate still lacks for its promotion."""
    fewest = min(evidence.candidate.units, evidence.primary.units)
    last = len(plan.ramp) - 1
    checks = [
        *(
            (value is None or value >= plan.promote_at, f"{words} {value or 0.0:.3g} of {plan.promote_at:g}")
            for words, value in proofs(evidence)
        ),
        (evidence.step >= last, f"ramp at step {evidence.step + 1} of {last + 1}, {evidence.share:.0%}"),
        (fewest >= plan.min_units_per_arm, f"{fewest} of {plan.min_units_per_arm} units in the smaller arm"),
        (
            plan.rule < 3 or (evidence.harm_type or 0.0) < plan.hold_ramp_at,
            f"e-value for harm to the {_type(evidence.worst_type)} {evidence.harm_type or 0.0:.3g}, "
            f"below {plan.hold_ramp_at:g} to promote",
        ),
        (evidence.awaited_type is None, f"too few tasks of the {_type(evidence.awaited_type)}"),
        (evidence.age_s >= plan.min_age_s, f"{evidence.age_s:.0f} of {plan.min_age_s:.0f} seconds old"),
    ]
    return [sentence for met, sentence in checks if not met]


def lacks_only_age(plan: ExperimentPlan, evidence: Evidence) -> bool:
    """True if a promotion waits for nothing but the minimum age."""
    is_young = plan.kind == "canary" and evidence.age_s < plan.min_age_s
    return is_young and len(_missing(plan, evidence)) == 1


def proofs(evidence: Evidence) -> tuple[tuple[str, float | None], ...]:
    """All that must be proved before a promotion, each at the plan's threshold; null where the plan asks for it not.

    Whoever may veto a promotion puts an e-value into the evidence, and a line here.
    """
    return (
        ("score e-value", evidence.gain_score),
        ("success e-value", evidence.gain_success),
        ("e-value with missing scores at their worst", evidence.gain_bounds),
        ("e-value for length within its limit", evidence.kept_length),
        ("e-value for latency within its limit", evidence.kept_latency),
        ("e-value for refusals within their limit", evidence.kept_refused),
        ("e-value for no loss by the auditor", evidence.gain_audit),
        ("e-value for no loss in what users are served", evidence.gain_served),
    )


def _also(evidence: Evidence) -> str:
    """Return what else was proved, as part of a sentence."""
    if evidence.gain_bounds is None:
        return "both"
    limits = "" if evidence.kept is None else f"within the limits: {evidence.kept:.4g}; "
    audit = "" if evidence.gain_audit is None else f"no loss by the auditor: {evidence.gain_audit:.4g}; "
    served = "" if evidence.gain_served is None else f"no loss in what users are served: {evidence.gain_served:.4g}; "
    return f"with missing scores at their worst: {evidence.gain_bounds:.4g}; {limits}{audit}{served}all"


def _judge_spent_budget(plan: ExperimentPlan, evidence: Evidence, missing: list[str]) -> tuple[Verdict, str]:
    if plan.kind != "canary":
        return Verdict.STABLE, f"no harm proved, {_describe_watch(plan, evidence)}"
    return Verdict.INCONCLUSIVE, f"after {evidence.units} units, the whole budget, still missing: {'; '.join(missing)}"


def _describe_watch(plan: ExperimentPlan, evidence: Evidence) -> str:
    return (
        f"{evidence.units} of {plan.max_units} units watched, harm e-value {evidence.harm:.3g} of {plan.roll_back_at:g}"
    )
