"""Begins experiments and carries out their verdicts: moves for the registry. Pure.

Programs are tried by the rule of versions and by the same number of candidates; only length and latency, which are what
a program costs, have limits of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from ratchet.adapters.manifest import version_key
from ratchet.experiments.effect import loss_of
from ratchet.experiments.lifetime import (
    after_replay,
    alpha_of,
    candidates_tried,
    limit_plan,
    measured_since_base,
    watch_plan,
)
from ratchet.experiments.replay import parameters, plan_of
from ratchet.experiments.shadow import ShadowRule
from schemas.messages.adapter_event import AdapterMove
from schemas.messages.work import BASE_VERSION
from schemas.records.decision import (
    Archive,
    Conclude,
    Move,
    ProgramArms,
    Promote,
    PromoteProgram,
    RejectVersion,
    RollBack,
    RollBackProgram,
    RunningExperiment,
    StartExperiment,
)
from schemas.records.evidence import Change, Evidence, ExperimentPlan, Limits, Verdict
from schemas.records.registry import AdapterEntry, AgentAdapters, Entry, EntryState

NAMED = 60
"""Characters of a program's name in the id of its experiment."""


@dataclass(frozen=True, slots=True)
class ExperimentPolicy:
    """The settings by which this fleet experiments."""

    canary: ExperimentPlan
    """Its id is a placeholder."""
    cool_down: timedelta
    """Between an experiment that ended without a promotion and the next one."""
    watch_share: float
    """Share of what the primary is watched beside, after twice as much at first; 0: it is not watched."""
    audit_share: float = 0.0
    """Share of the units of a watch that are audited: all traffic is its units."""
    program_limits: Limits | None = None
    """Limits in place of the canary's where programs are compared; None: the same."""


class CoolDown:
    """When a cool-down is over, by time that does not jump.

    What was left of it when it was first seen here is what the wall clock said, but no more than the whole; from then
    on a wall clock that is set neither ends nor prolongs it.
    """

    def __init__(self, length: timedelta) -> None:
        self._length_s = length.total_seconds()
        self._until: datetime | None = None
        self._over_at = 0.0

    def now(self, until: datetime | None, wall: datetime, seconds: float) -> datetime:
        """The time to decide by: before `until` as long as it lasts, and not before it from then on."""
        if until is None:
            return wall
        if until != self._until:
            left_s = min(max((until - wall).total_seconds(), 0.0), self._length_s)
            self._until, self._over_at = until, seconds + left_s
        steady = until - timedelta(seconds=self._over_at - seconds)
        return max(wall, steady) if steady >= until else min(wall, steady)


@dataclass(frozen=True, slots=True)
class Where:
    """The place in the logs, and the time, at which an experiment begins."""

    sequence: int
    positions: Mapping[str, int]
    at: datetime
    partners: Mapping[str, str] | None = None
    """The versions of the other roles, of an agent that plays one in a team."""
    draw_sha256: Callable[[str], str | None] | None = None
    """The SHA-256 of the secret that draws the arms of a new experiment, by its id; None: its draws have no secret."""


def next_candidate(
    adapters: AgentAdapters, now: datetime, fits: Callable[[AdapterEntry], bool] = lambda _: True
) -> str | None:
    """The newest validated version that the agent can answer with, where an experiment may start at all."""
    if not may_begin(adapters, now):
        return None
    validated = [entry for entry in adapters.versions.values() if entry.state is EntryState.VALIDATED]
    return max((entry.version for entry in validated if fits(entry)), key=version_key, default=None)


def may_begin(adapters: AgentAdapters, now: datetime) -> bool:
    """True if an experiment may begin now, be it of adapters or of programs."""
    cooling = adapters.cool_down_until is not None and now < adapters.cool_down_until
    return not (adapters.experiment or adapters.frozen or cooling)


def canary(
    agent_id: str, candidate: str, adapters: AgentAdapters, policy: ExperimentPolicy, where: Where
) -> StartExperiment:
    """Begin a canary by its part of what all candidates may get wrong, and within what the primary has left of the
    limits.

    A replay beside the primary is taken over; one beside an earlier primary says nothing of this experiment.
    """
    entries, primary = adapters.versions, adapters.primary
    found = entries[candidate].replayed
    replay = found if found is not None and found.against == primary else None
    fleet_s = policy.canary.model_copy(update={"experiment_id": f"{agent_id}-{candidate}-{where.sequence}"})
    since_base = measured_since_base(entries[primary].since_base or Change(), replay)
    plan = limit_plan(fleet_s, nth=next_number(adapters), since_base=since_base)
    plan = after_replay(plan, replay.evidence if replay else None, 1.0 / policy.canary.alpha)
    return StartExperiment(experiment=running_of(plan, treatment=candidate, control=primary, where=where))


def program_canary(
    agent_id: str, arms: ProgramArms, adapters: AgentAdapters, policy: ExperimentPolicy, where: Where
) -> StartExperiment:
    """Begin a canary of a program as one of a version, within what the present program has left of the limits."""
    present = adapters.programs.entries[arms.control.name]
    fleet_s = plan_of_programs(f"{agent_id}-program-{arms.treatment.name[:NAMED]}-{where.sequence}", policy)
    plan = limit_plan(fleet_s, nth=next_number(adapters), since_base=present.since_first or Change())
    primary = adapters.primary
    return StartExperiment(experiment=running_of(plan, treatment=primary, control=primary, where=where, programs=arms))


def shadow_rule(adapters: AgentAdapters, policy: ExperimentPolicy, *, of_program: bool = False) -> ShadowRule:
    """Return the rule for the replay of the agent's next candidate: the fleet's limits, and what its live test will ask
    for.
    """
    fleet_s = policy.canary
    limits = policy.program_limits if of_program else fleet_s.limits
    return ShadowRule(
        limits=limits or fleet_s.limits or Limits(success=0.05, refused=0.05, length=1.3, latency=2.0),
        alpha=fleet_s.alpha,
        promote_at=1.0 / alpha_of(fleet_s.alpha, next_number(adapters)),
        success_margin=fleet_s.success_margin,
        score_tolerance=fleet_s.score_tolerance,
        success_tolerance=fleet_s.success_tolerance,
        refused_tolerance=fleet_s.refused_tolerance,
        type_tolerance=fleet_s.type_tolerance,
    )


def next_number(adapters: AgentAdapters) -> int:
    """Return the number of the agent's next candidate, be it an adapter or a program: all share one part of errors."""
    return 1 + candidates_tried([*adapters.versions.values(), *adapters.programs.entries.values()])


def next_watch(
    agent_id: str, adapters: AgentAdapters, policy: ExperimentPolicy, where: Where, programs: ProgramArms | None = None
) -> StartExperiment | Conclude | None:
    """Begin the next watch where none runs: over the primary or, in turns with it, the program that answers by default.

    A primary is watched two turns beside the version before it, then one beside v1.0.0. A program that was promoted
    while a watch over the primary runs ends that one: what is new is watched first. `programs`: the present one and the
    one before it, where runners have both.
    """
    version = adapters.versions[adapters.primary]
    program = adapters.programs.entries[programs.treatment.name] if programs else None
    if adapters.frozen or not policy.watch_share:
        return None
    if (watch := adapters.watch) is not None:
        is_new = program is not None and watch.contest == "adapters" and last_watch(program) < program.decision
        return Conclude(experiment_id=watch.experiment_id, verdict="unharmed") if is_new else None
    if program and (version.version == BASE_VERSION or last_watch(program) <= last_watch(version)):
        nth, control, against_base = next_turn(program), version.version, False
        experiment_id = f"{agent_id}-program-{program.name[:NAMED]}-{where.sequence}-watch"
        fleet_s = plan_of_programs(experiment_id, policy)
    elif version.version != BASE_VERSION:
        nth, programs, fleet_s = next_turn(version), None, policy.canary
        control = adapters.previous if nth % 3 and adapters.previous else BASE_VERSION
        against_base = control == BASE_VERSION
        experiment_id = f"{agent_id}-{version.version}-{where.sequence}-watch"
    else:
        return None
    plan = watch_plan(
        experiment_id,
        fleet_s,
        share=policy.watch_share,
        nth=nth,
        against_base=against_base,
        audit_share=policy.audit_share,
    )
    running = running_of(plan, treatment=version.version, control=control, where=where, programs=programs)
    return StartExperiment(experiment=running)


def next_turn(entry: Entry) -> int:
    """Return the number of the next turn of the watch over it."""
    return 1 + sum(outcome.kind == "watch" for outcome in entry.outcomes)


def last_watch(entry: Entry) -> int:
    """Return the decision that ended the newest watch over it; 0: there was none."""
    return max((outcome.decision for outcome in entry.outcomes if outcome.kind == "watch"), default=0)


def move_after_verdict(
    running: RunningExperiment,
    verdict: Verdict,
    policy: ExperimentPolicy,
    where: Where,
    evidence: Evidence | None = None,
) -> Move:
    """Return what a final verdict does."""
    if running.kind != "canary":
        return _end_of_watch(running, verdict, evidence)
    cool_down_until = where.at + policy.cool_down if policy.cool_down else None
    of_programs, treatment = running.contest == "programs", running.arms[0]
    match verdict:
        case Verdict.PROMOTE:
            proof, change = running.experiment_id, changed_since(plan_of(running), evidence)
            if of_programs:
                return PromoteProgram(program=treatment, experiment_id=proof, since_first=change)
            return Promote(version=treatment, experiment_id=proof, since_base=change)
        case Verdict.ROLL_BACK if of_programs:
            return RollBackProgram(program=treatment, cool_down_until=cool_down_until)
        case Verdict.ROLL_BACK:
            return RollBack(version=treatment, cool_down_until=cool_down_until)
        case Verdict.ABORT:
            return _conclude(running, "aborted", cool_down_until)
        case Verdict.INCONCLUSIVE:
            return _conclude(running, "inconclusive", cool_down_until)
        case _:
            raise ValueError(f"a canary has no verdict {verdict} to carry out")


def _end_of_watch(running: RunningExperiment, verdict: Verdict, evidence: Evidence | None) -> Move:
    """A primary that is worse in score gives way to what it is worse than; one beyond a limit to the one before it.

    A probation that an older version began ends as a watch does.
    """
    of_programs, treatment = running.contest == "programs", running.arms[0]
    if verdict is Verdict.ROLL_BACK and of_programs:
        return RollBackProgram(program=treatment)
    if verdict is Verdict.ROLL_BACK:
        by_score = evidence is not None and max(evidence.harm_score, evidence.harm_audit or 0.0) >= max(
            evidence.harm_success, evidence.harm_length, evidence.harm_latency, evidence.harm_refused or 0.0
        )
        return RollBack(version=treatment, to=running.control if by_score else None)
    if verdict is Verdict.ABORT:
        return _conclude(running, "aborted")
    beside_base = not of_programs and running.control == BASE_VERSION
    since_base = evidence.change if evidence and beside_base else None
    return Conclude(experiment_id=running.experiment_id, verdict="unharmed", since_base=since_base)


def event_of(move: Move, running: RunningExperiment | None) -> AdapterMove:
    """Return what replicas are told of a move, which know no programs. `running`: the experiment that it ends."""
    match move:
        case RejectVersion():
            return "rejected"
        case Archive():
            return "retired"
        case StartExperiment(experiment=experiment) if experiment.contest == "adapters":
            return "experiment_started"
        case Promote():
            return "promoted"
        case RollBack():
            return "rolled_back"
        case Conclude(verdict="aborted" | "inconclusive" as verdict) if running is not None:
            return verdict if (running.contest, running.kind) == ("adapters", "canary") else "standing"
        case _:
            return "standing"


def changed_since(plan: ExperimentPlan, evidence: Evidence | None) -> Change | None:
    """Return what the treatment has changed: what its control had changed, and what it has changed itself."""
    change = evidence.change if evidence else None
    return plan.limits.since_base.and_then(change) if plan.limits and change else None


def _conclude(
    running: RunningExperiment, verdict: Literal["aborted", "inconclusive"], cool_down_until: datetime | None = None
) -> Conclude:
    return Conclude(experiment_id=running.experiment_id, verdict=verdict, cool_down_until=cool_down_until)


def plan_of_programs(experiment_id: str, policy: ExperimentPolicy) -> ExperimentPlan:
    """Return the fleet's plan with the limits of programs: what they allow is no harm."""
    plan = policy.canary.model_copy(update={"experiment_id": experiment_id})
    if (limits := policy.program_limits) is None:
        return plan
    tolerances = {"length_tolerance": loss_of(limits.length), "latency_tolerance": loss_of(limits.latency)}
    return plan.model_copy(update={"limits": limits, **tolerances})


def running_of(
    plan: ExperimentPlan, *, treatment: str, control: str, where: Where, programs: ProgramArms | None = None
) -> RunningExperiment:
    """Return the experiment as it is written into the decision that begins it."""
    if where.draw_sha256 is not None:
        plan = plan.model_copy(update={"draw_sha256": where.draw_sha256(plan.experiment_id)})
    return RunningExperiment(
        experiment_id=plan.experiment_id,
        kind=plan.kind,
        treatment=treatment,
        control=control,
        share=plan.ramp[0].share,
        started_at=where.at,
        first_sequence=where.sequence,
        parameters=parameters(plan, where.positions),
        programs=programs,
        partners=dict(where.partners) if where.partners else None,
    )
