"""How experiments of programs begin and what their verdicts become: moves for the registry. Pure.

By the rule of versions and by the same number of candidates; only length and latency, which are what a program costs,
have limits of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ratchet.experiments.effect import loss_of
from ratchet.experiments.lifetime import limited, watch_plan
from ratchet.experiments.replay import plan_of
from schemas.messages.work import BASE_VERSION
from schemas.records.decision import (
    Conclude,
    Move,
    ProgramArms,
    ProgramRevision,
    PromoteProgram,
    RollBackProgram,
    RunningExperiment,
    StartExperiment,
)
from schemas.records.evidence import Change, Evidence, ExperimentPlan, Verdict
from schemas.records.registry import AgentAdapters
from services.orchestrator.promotion.experiment_transitions import (
    ExperimentPolicy,
    Where,
    carried_out,
    changed_since,
    concluded,
    is_cooling,
    last_watch,
    next_number,
    next_turn,
    running_of,
)

NAMED = 60
"""Characters of a program's name in the id of its experiment."""

Declared = Mapping[str, str]
"""What one runner says: each of an agent's programs with its revision."""


def agreed(names: tuple[str, str], told: Sequence[Declared]) -> ProgramArms | str:
    """Treatment and control as all runners have them; else a sentence that says what is in the way."""
    if not told:
        return "no runner tells of its programs"
    found = []
    for name in names:
        revisions = {one.get(name) for one in told}
        if revisions == {None}:
            there = sorted({known for one in told for known in one})
            return f"runners have no program {name}: they have {', '.join(there) or 'none'}"
        if len(revisions) > 1:
            return f"not all {len(told)} runners have the same program {name}"
        found.append(ProgramRevision(name=name, revision=str(revisions.pop())))
    return ProgramArms(treatment=found[0], control=found[1])


def difference(arms: ProgramArms, told: Sequence[Declared]) -> str | None:
    """What a runner has of these programs that is not what is compared; None as long as none says so."""
    for one in (arms.treatment, arms.control):
        others = {declared.get(one.name) for declared in told} - {one.revision}
        if others == {None}:
            return f"a runner no longer has the program {one.name}"
        if others:
            return f"program {one.name} was changed: a runner has another revision of it than was compared"
    return None


def may_begin(adapters: AgentAdapters, where: Where) -> bool:
    """Whether an experiment of programs may begin now."""
    return not (adapters.experiment or adapters.frozen or is_cooling(adapters, where.at))


def program_canary(
    agent_id: str, arms: ProgramArms, adapters: AgentAdapters, policy: ExperimentPolicy, where: Where
) -> StartExperiment:
    """By its part of what all candidates may get wrong, and within what the present program has left of the limits."""
    present = adapters.programs.entries[arms.control.name]
    experiment_id = f"{agent_id}-program-{arms.treatment.name[:NAMED]}-{where.sequence}"
    plan = limited(
        _fleet_s(experiment_id, policy), nth=next_number(adapters), since_base=present.since_first or Change()
    )
    return StartExperiment(experiment=_running(plan, arms, adapters.primary, where))


def next_program_watch(
    agent_id: str, arms: ProgramArms | None, adapters: AgentAdapters, policy: ExperimentPolicy, where: Where
) -> StartExperiment | Conclude | None:
    """Over the program that answers by default beside the one before it, in turns with the watch over the primary.

    A program that was promoted while that watch runs ends it: what is new is watched first. `arms`: both programs.
    """
    if arms is None or adapters.frozen or not policy.watch_share:
        return None
    program, primary = adapters.programs.entries[arms.treatment.name], adapters.versions[adapters.primary]
    watched = last_watch(program)
    if (watch := adapters.watch) is not None:
        is_new = watch.programs is None and watched < program.decision
        return Conclude(experiment_id=watch.experiment_id, verdict="unharmed") if is_new else None
    if watched > last_watch(primary) and primary.version != BASE_VERSION:
        return None
    experiment_id = f"{agent_id}-program-{program.name[:NAMED]}-{where.sequence}-watch"
    plan = watch_plan(
        experiment_id,
        _fleet_s(experiment_id, policy),
        share=policy.watch_share,
        nth=next_turn(program),
        audit_share=policy.audit_share,
    )
    return StartExperiment(experiment=_running(plan, arms, adapters.primary, where))


def program_carried_out(
    running: RunningExperiment,
    arms: ProgramArms,
    verdict: Verdict,
    policy: ExperimentPolicy,
    where: Where,
    evidence: Evidence | None = None,
) -> Move:
    """What a final verdict does."""
    if running.kind != "canary":
        return carried_out(running, verdict, policy, where, evidence)[0]
    cool_down_until = where.at + policy.cool_down if policy.cool_down else None
    program = arms.treatment.name
    match verdict:
        case Verdict.PROMOTE:
            since_first = changed_since(plan_of(running), evidence.change if evidence else None)
            return PromoteProgram(program=program, experiment_id=running.experiment_id, since_first=since_first)
        case Verdict.ROLL_BACK:
            return RollBackProgram(program=program, cool_down_until=cool_down_until)
        case Verdict.ABORT:
            return concluded(running, "aborted", cool_down_until)
        case Verdict.INCONCLUSIVE:
            return concluded(running, "inconclusive", cool_down_until)
        case _:
            raise ValueError(f"a canary has no verdict {verdict} to carry out")


def _fleet_s(experiment_id: str, policy: ExperimentPolicy) -> ExperimentPlan:
    """The fleet's plan with the limits of programs: what they allow is no harm."""
    plan = policy.canary.model_copy(update={"experiment_id": experiment_id})
    if (limits := policy.program_limits) is None:
        return plan
    tolerances = {"length_tolerance": loss_of(limits.length), "latency_tolerance": loss_of(limits.latency)}
    return plan.model_copy(update={"limits": limits, **tolerances})


def _running(plan: ExperimentPlan, arms: ProgramArms, primary: str, where: Where) -> RunningExperiment:
    return running_of(plan, treatment=primary, control=primary, where=where, programs=arms)
