"""The moves that put an agent's programs into traffic or take them out. Pure.

As those of versions (traffic_moves.py): one experiment at a time, of either kind; a roll-back is never refused for
being frozen, cooling down or in an experiment. Whether runners have a program is not known here.
"""

from __future__ import annotations

from ratchet.adapters.program_entries import move_entries, replace_programs, with_outcome
from ratchet.adapters.traffic_moves import (
    refuse_if_cooling,
    refuse_if_frozen,
    refuse_if_running,
    refuse_if_watched,
    running_experiment,
)
from ratchet.adapters.traffic_moves import (
    replace_adapters as changed_agent,
)
from ratchet.service.errors import NotAllowed
from schemas.records.decision import (
    Conclude,
    Decision,
    ProgramArms,
    PromoteProgram,
    RejectProgram,
    RollBackProgram,
    RunningExperiment,
    SettleProgram,
    StartExperiment,
    TryProgram,
)
from schemas.records.program_state import ProgramState
from schemas.records.registry import AgentAdapters, ProgramEntry

WITHOUT_A_WINNER = {"inconclusive": ProgramState.INCONCLUSIVE, "aborted": ProgramState.ABORTED}


def try_program(agent: AgentAdapters, move: TryProgram, decision: Decision) -> AgentAdapters:
    """An operator's word, about one program at a time, and against one that answers by default."""
    programs = agent.programs
    refuse_if_frozen(agent)
    if not decision.by_operator:
        raise NotAllowed(f"program {move.program} is tried only where an operator asks for it")
    if programs.primary is None:
        raise NotAllowed(
            f"no program answers by default yet, so there is none to try {move.program} against: say which one does, "
            "with `ratchet programs promote`"
        )
    if move.program == programs.primary:
        raise NotAllowed(f"program {move.program} answers by default already")
    if (busy := programs.asked or programs.candidate) is not None:
        raise NotAllowed(f"program {busy} is tried already: one at a time; `ratchet programs rollback` calls it off")
    return _replace_agent(agent, entries=move_entries(programs, {move.program: ProgramState.ASKED}, decision))


def reject_program(agent: AgentAdapters, move: RejectProgram, decision: Decision) -> AgentAdapters:
    return _replace_agent(agent, entries=move_entries(agent.programs, {move.program: ProgramState.REJECTED}, decision))


def start_experiment_of_programs(agent: AgentAdapters, move: StartExperiment, decision: Decision) -> AgentAdapters:
    """Start the experiment of the program that was asked for, or the watch over the one that answers by default.

    A probation, which older ledgers have, was checked when it was decided.
    """
    experiment, programs = move.experiment, agent.programs
    arms = _arms_of(experiment)
    refuse_if_frozen(agent)
    _check_version(agent, experiment)
    if experiment.kind == "watch":
        _check_watch(agent, arms)
        return _replace_agent(agent, watch=experiment, entries=_with_revisions(programs.entries, arms))
    refuse_if_running(agent)
    refuse_if_cooling(agent, decision)
    if experiment.kind == "probation":
        return _replace_agent(agent, experiment=experiment, entries=_with_revisions(programs.entries, arms))
    if experiment.kind != "canary" or arms.control.name != programs.primary:
        raise NotAllowed(
            f"{experiment.experiment_id} is no canary against {programs.primary}, which answers by default"
        )
    entries = move_entries(programs, {arms.treatment.name: ProgramState.CANARY}, decision)
    return _replace_agent(
        agent,
        experiment=experiment,
        cool_down_until=None,
        entries=_with_revisions(entries, arms),
        candidate=arms.treatment.name,
    )


def promote_program(agent: AgentAdapters, move: PromoteProgram, decision: Decision) -> AgentAdapters:
    """Promote the canary of the experiment that proved it; for an operator, any program that is out of traffic."""
    programs, experiment = agent.programs, agent.experiment
    refuse_if_frozen(agent)
    if move.program == programs.primary:
        raise NotAllowed(f"program {move.program} answers by default already")
    if move.experiment_id is not None:
        _check_proof(agent, move)
    elif not decision.by_operator:
        raise NotAllowed(f"program {move.program} is promoted only by the experiment that proves it, or by an operator")
    if programs.candidate not in (None, move.program):
        raise NotAllowed(f"program {programs.candidate} is in an experiment: roll it back before another is promoted")
    if experiment is not None and experiment.programs is None:
        raise NotAllowed(
            f"{experiment.experiment_id} compares adapters, all of whose tasks the present program answers: it has to "
            "end first"
        )
    measured = {"since_first": move.since_first} if move.since_first else {}
    states = {move.program: ProgramState.STABLE}
    entries = move_entries(programs, states, decision, replaced=programs.primary, **measured)
    if programs.primary is not None:
        superseded = move_entries(programs, {programs.primary: ProgramState.SUPERSEDED}, decision)
        entries[programs.primary] = superseded[programs.primary]
    if programs.candidate:
        entries = with_outcome(entries, experiment, "promoted", decision)
    return _replace_agent(
        agent,
        experiment=move.probation,
        watch=_without_programs(agent.watch),
        cool_down_until=None,
        entries=with_outcome(entries, agent.watch, "replaced", decision),
        primary=move.program,
        previous=programs.primary,
        candidate=None,
    )


def settle_program(agent: AgentAdapters, move: SettleProgram, decision: Decision) -> AgentAdapters:
    """Ends a probation, which older ledgers have; the program is stable from its promotion on."""
    programs, experiment = agent.programs, agent.experiment
    if move.program != programs.primary:
        raise NotAllowed(f"program {move.program} does not answer by default, but {programs.primary}")
    stamp = {"decision": decision.sequence, "since": decision.at}
    entries = {**programs.entries, move.program: programs.entries[move.program].model_copy(update=stamp)}
    entries = with_outcome(entries, experiment, "settled", decision)
    return _replace_agent(agent, experiment=_without_programs(experiment), entries=entries)


def roll_back_program(agent: AgentAdapters, move: RollBackProgram, decision: Decision) -> AgentAdapters:
    """Roll back a program that waits, the candidate, or the default one, with the experiment it is part of."""
    programs, experiment = agent.programs, agent.experiment
    if move.program == programs.asked:
        return _replace_agent(agent, entries=move_entries(programs, {move.program: ProgramState.ABORTED}, decision))
    if move.program == programs.candidate:
        entries = move_entries(programs, {move.program: ProgramState.ROLLED_BACK}, decision)
        return _replace_agent(
            agent,
            experiment=None,
            cool_down_until=move.cool_down_until,
            entries=with_outcome(entries, experiment, "rolled_back", decision),
            candidate=None,
        )
    if move.program != programs.primary:
        raise NotAllowed(f"program {move.program} is in no traffic: there is nothing to roll back")
    states = {move.program: ProgramState.ROLLED_BACK}
    if programs.candidate is not None:
        states[programs.candidate] = ProgramState.ABORTED
    if programs.previous is not None:  # also where it is tried again by now
        states[programs.previous] = ProgramState.STABLE
    entries = move_entries(programs, states, decision)
    entries = with_outcome(entries, experiment, "aborted" if programs.candidate else "rolled_back", decision)
    return _replace_agent(
        agent,
        experiment=_without_programs(experiment),
        watch=_without_programs(agent.watch),
        cool_down_until=move.cool_down_until,
        entries=with_outcome(entries, agent.watch, "rolled_back", decision),
        primary=programs.previous,
        previous=_previous_program(entries, programs.previous),
        candidate=None,
    )


def conclude_program(agent: AgentAdapters, move: Conclude, decision: Decision) -> AgentAdapters:
    """End an experiment: the candidate of a canary leaves; a watch leaves all as it is."""
    programs = agent.programs
    if agent.watch is not None and agent.watch.experiment_id == move.experiment_id:
        return _replace_agent(
            agent, watch=None, entries=with_outcome(programs.entries, agent.watch, move.verdict, decision)
        )
    experiment = running_experiment(agent, move.experiment_id)
    if move.verdict == "unharmed" and experiment.kind == "canary":
        raise NotAllowed(f"{experiment.experiment_id} is a canary: only a watch ends as unharmed")
    states = {programs.candidate: WITHOUT_A_WINNER[move.verdict]} if programs.candidate else {}
    entries = with_outcome(move_entries(programs, states, decision), experiment, move.verdict, decision)
    return _replace_agent(agent, experiment=None, cool_down_until=move.cool_down_until, entries=entries, candidate=None)


_OF_AGENT = ("experiment", "watch", "cool_down_until")


def _replace_agent(agent: AgentAdapters, **changes: object) -> AgentAdapters:
    """The agent with other programs, and the experiment, watch and cool-down that are named."""
    of_agent = {name: changes.pop(name) for name in _OF_AGENT if name in changes}
    return changed_agent(agent, programs=replace_programs(agent.programs, **changes), **of_agent)


def _with_revisions(entries: dict[str, ProgramEntry], arms: ProgramArms) -> dict[str, ProgramEntry]:
    named = {one.name: one.revision for one in (arms.treatment, arms.control)}
    return {
        name: entry.model_copy(update={"revision": named[name]}) if name in named else entry
        for name, entry in entries.items()
    }


def _without_programs(experiment: RunningExperiment | None) -> RunningExperiment | None:
    return None if experiment is None or experiment.programs is not None else experiment


def _previous_program(entries: dict[str, ProgramEntry], primary: str | None) -> str | None:
    """The nearest program before this one that could take over again; None: the dealing to all."""
    seen = {primary}
    name = entries[primary].replaced if primary is not None else None
    while name is not None and name not in seen:
        if entries[name].state is ProgramState.SUPERSEDED:
            return name
        seen.add(name)
        name = entries[name].replaced
    return None


def _arms_of(experiment: RunningExperiment) -> ProgramArms:
    if experiment.programs is None:
        raise NotAllowed(f"{experiment.experiment_id} names no programs")
    if experiment.programs.treatment.name == experiment.programs.control.name:
        raise NotAllowed(f"{experiment.experiment_id} compares a program with itself")
    return experiment.programs


def _check_version(agent: AgentAdapters, experiment: RunningExperiment) -> None:
    if {experiment.treatment, experiment.control} != {agent.primary}:
        raise NotAllowed(
            f"both arms of an experiment of programs are answered by the primary version, which is {agent.primary}, "
            f"not by {experiment.treatment} and {experiment.control}"
        )


def _check_proof(agent: AgentAdapters, move: PromoteProgram) -> None:
    experiment = running_experiment(agent, str(move.experiment_id))
    if experiment.kind != "canary" or experiment.programs is None or experiment.arms[0] != move.program:
        raise NotAllowed(f"experiment {experiment.experiment_id} tests {experiment.arms[0]}, not {move.program}")


def _check_watch(agent: AgentAdapters, arms: ProgramArms) -> None:
    refuse_if_watched(agent)
    programs = agent.programs
    if (arms.treatment.name, arms.control.name) != (programs.primary, programs.previous):
        raise NotAllowed(
            f"a watch over program {programs.primary} must hold back {programs.previous}, not compare "
            f"{arms.treatment.name} with {arms.control.name}"
        )
