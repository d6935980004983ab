"""How experiments begin and what their verdicts become: moves for the registry. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from ratchet.adapters.manifest import version_key
from ratchet.experiments.lifetime import candidates_tried, limited
from ratchet.experiments.replay import parameters, plan_of
from schemas.messages.adapter_event import AdapterMove
from schemas.records.adapter_state import AdapterState
from schemas.records.decision import Conclude, Move, Promote, RollBack, RunningExperiment, Settle, StartExperiment
from schemas.records.evidence import Change, ExperimentPlan, Verdict, probation_plan
from schemas.records.registry import AgentAdapters


@dataclass(frozen=True, slots=True)
class ExperimentPolicy:
    """How this fleet experiments."""

    canary: ExperimentPlan
    """Its id is a placeholder."""
    probation_units: int
    """0: a promotion is final at once."""
    holdback: float
    """Share of the old primary during a probation."""
    cool_down: timedelta
    """Between an experiment that ended without a promotion and the next one."""


@dataclass(frozen=True, slots=True)
class Where:
    """The place in the logs, and the time, at which an experiment begins."""

    sequence: int
    positions: Mapping[str, int]
    at: datetime


def next_candidate(adapters: AgentAdapters, now: datetime) -> str | None:
    """The newest validated version, where an experiment may start at all."""
    if adapters.experiment or adapters.frozen or _cooling(adapters, now) or adapters.candidate:
        return None
    ready = [version for version, entry in adapters.versions.items() if entry.state is AdapterState.VALIDATED]
    return max(ready, key=version_key, default=None)


def canary(
    agent_id: str, candidate: str, adapters: AgentAdapters, policy: ExperimentPolicy, where: Where
) -> StartExperiment:
    """By its part of what all candidates may get wrong, and within what the primary has left of the limits."""
    entries, primary = adapters.versions, adapters.primary
    fleet_s = policy.canary.model_copy(update={"experiment_id": f"{agent_id}-{candidate}-{where.sequence}"})
    nth = 1 + candidates_tried(entries.values())
    plan = limited(fleet_s, nth=nth, since_base=entries[primary].since_base or Change())
    return StartExperiment(experiment=_running(plan, treatment=candidate, control=primary, where=where))


def watch(agent_id: str, adapters: AgentAdapters, policy: ExperimentPolicy, where: Where) -> Move | None:
    """For a primary on probation that no experiment watches: promoted by hand, or its probation was aborted.

    It is watched beside the one before it; without a probation in the policy, or anything to go back to, it is settled.
    """
    primary, before = adapters.primary, adapters.previous
    on_probation = adapters.versions[primary].state is AdapterState.PROBATION
    if not on_probation or adapters.experiment or adapters.frozen:
        return None
    if not policy.probation_units or before is None:
        return Settle(version=primary)
    if _cooling(adapters, where.at):
        return None
    plan = _probation_plan(f"{agent_id}-{primary}-{where.sequence}-probation", policy.canary, policy)
    return StartExperiment(experiment=_running(plan, treatment=primary, control=before, where=where))


def carried_out(
    running: RunningExperiment, verdict: Verdict, policy: ExperimentPolicy, where: Where, change: Change | None = None
) -> tuple[Move, AdapterMove]:
    """What a final verdict does, and the event it is announced by. `change`: of treatment to control, as measured."""
    cool_down_until = where.at + policy.cool_down if policy.cool_down else None
    match verdict:
        case Verdict.PROMOTE:
            probation = _probation(running, policy, where) if policy.probation_units else None
            move = Promote(
                version=running.treatment,
                experiment_id=running.experiment_id,
                probation=probation,
                since_base=_since_base(plan_of(running), change),
            )
            return move, "promoted"
        case Verdict.STABLE:
            return Settle(version=running.treatment), "settled"
        case Verdict.ROLL_BACK:
            return RollBack(version=running.treatment, cool_down_until=cool_down_until), "rolled_back"
        case Verdict.ABORT:
            return _concluded(running, "aborted", cool_down_until), "aborted"
        case Verdict.INCONCLUSIVE:
            return _concluded(running, "inconclusive", cool_down_until), "inconclusive"
        case Verdict.CONTINUE:
            raise ValueError("an experiment that goes on has no verdict to carry out")


def _since_base(plan: ExperimentPlan, change: Change | None) -> Change | None:
    """Of the treatment: what its control had changed, and what it has changed itself."""
    return plan.limits.since_base.and_then(change) if plan.limits and change else None


def _concluded(running: RunningExperiment, verdict: str, cool_down_until: datetime | None) -> Conclude:
    return Conclude.model_validate(
        {"experiment_id": running.experiment_id, "verdict": verdict, "cool_down_until": cool_down_until}
    )


def _probation(running: RunningExperiment, policy: ExperimentPolicy, where: Where) -> RunningExperiment:
    """The promoted version and, as its holdback, the primary it beat."""
    plan = _probation_plan(f"{running.experiment_id}-probation", plan_of(running), policy)
    return _running(plan, treatment=running.treatment, control=running.control, where=where)


def _probation_plan(experiment_id: str, canary: ExperimentPlan, policy: ExperimentPolicy) -> ExperimentPlan:
    return probation_plan(experiment_id, canary, holdback=policy.holdback, units=policy.probation_units)


def _cooling(adapters: AgentAdapters, now: datetime) -> bool:
    return adapters.cool_down_until is not None and now < adapters.cool_down_until


def _running(plan: ExperimentPlan, *, treatment: str, control: str, where: Where) -> RunningExperiment:
    return RunningExperiment(
        experiment_id=plan.experiment_id,
        kind=plan.kind,
        treatment=treatment,
        control=control,
        share=plan.ramp[0].share,
        started_at=where.at,
        first_sequence=where.sequence,
        parameters=parameters(plan, where.positions),
    )
