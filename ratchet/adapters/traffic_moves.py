"""The states a version may go through, and the moves that put it into traffic or take it out. Pure.

A roll-back is never refused for being frozen, cooling down or in an experiment: it is the way back to safety.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.adapters.program_entries import Verdict, with_one_more, without_experiment
from ratchet.service.errors import NotAllowed
from schemas.messages.work import BASE_VERSION
from schemas.records.adapter_state import AdapterState
from schemas.records.decision import (
    Conclude,
    Decision,
    Promote,
    RollBack,
    RunningExperiment,
    Settle,
    StartExperiment,
    Validate,
)
from schemas.records.registry import AdapterEntry, AgentAdapters

WITHOUT_A_WINNER = {"inconclusive": AdapterState.INCONCLUSIVE, "aborted": AdapterState.ABORTED}


_S = AdapterState

ALLOWED_MOVES: Mapping[AdapterState, frozenset[AdapterState]] = {
    _S.TRAINED: frozenset({_S.VALIDATED, _S.REJECTED}),
    _S.VALIDATED: frozenset({_S.CANARY, _S.STABLE, _S.REJECTED}),
    _S.CANARY: frozenset({_S.STABLE, _S.ROLLED_BACK, _S.INCONCLUSIVE, _S.ABORTED}),
    _S.STABLE: frozenset({_S.SUPERSEDED, _S.ROLLED_BACK}),
    _S.SUPERSEDED: frozenset({_S.STABLE, _S.ARCHIVED}),
    _S.REJECTED: frozenset({_S.ARCHIVED}),
    _S.ROLLED_BACK: frozenset({_S.STABLE, _S.ARCHIVED}),
    _S.INCONCLUSIVE: frozenset({_S.CANARY, _S.STABLE, _S.ARCHIVED}),
    _S.ABORTED: frozenset({_S.CANARY, _S.STABLE, _S.ARCHIVED}),
    _S.ARCHIVED: frozenset(),
}
"""Stable from anywhere but canary is an operator's word; an inconclusive or aborted version may try again."""


def entry_of(agent: AgentAdapters, version: str) -> AdapterEntry:
    """Raises NotAllowed for a version nobody registered."""
    if (entry := agent.versions.get(version)) is None:
        raise NotAllowed(f"there is no version {version}; `ratchet adapters list` shows those there are")
    return entry


def move_version(agent: AgentAdapters, version: str, to: AdapterState) -> AdapterEntry:
    """The version's entry in its new state. Raises NotAllowed if the table has no such move."""
    entry = entry_of(agent, version)
    if to not in ALLOWED_MOVES[entry.state]:
        options = ", ".join(sorted(ALLOWED_MOVES[entry.state])) or "nothing else"
        raise NotAllowed(f"{version} is {entry.state}, so it can't become {to}; from there it may become {options}")
    return entry.model_copy(update={"state": to})


def replace_adapters(agent: AgentAdapters, **changes: Any) -> AgentAdapters:
    """A copy whose invariants are checked again. Raises pydantic's ValidationError if the change breaks one."""
    return AgentAdapters(**(dict(agent) | changes))


def with_state(
    agent: AgentAdapters, version: str, to: AdapterState, decision: Decision, **changes: Any
) -> AgentAdapters:
    """One version in its new state, and whatever else changes with it. Raises NotAllowed as the table says."""
    return replace_adapters(agent, versions=_move_versions(agent, {version: to}, decision), **changes)


def validate(agent: AgentAdapters, move: Validate, decision: Decision) -> AgentAdapters:
    """Its replay is kept for its experiment."""
    after = with_state(agent, move.version, AdapterState.VALIDATED, decision)
    entry = after.versions[move.version].model_copy(update={"replayed": move.replayed})
    return replace_adapters(after, versions={**after.versions, move.version: entry})


def _move_versions(
    agent: AgentAdapters, states: dict[str, AdapterState], decision: Decision, verdict: Verdict | None = None
) -> dict[str, AdapterEntry]:
    """All entries, some in new states; with a verdict, the running experiment's treatment gets its outcome."""
    stamp = {"decision": decision.sequence, "since": decision.at}
    entries = {version: move_version(agent, version, to).model_copy(update=stamp) for version, to in states.items()}
    versions = {**agent.versions, **entries}
    return _with_outcome(versions, agent.experiment, verdict, decision) if verdict else versions


def _with_outcome(
    versions: dict[str, AdapterEntry], experiment: RunningExperiment | None, verdict: Verdict, decision: Decision
) -> dict[str, AdapterEntry]:
    """All entries, of which the treatment of the experiment, if there is one of versions, got its outcome."""
    if experiment is None or experiment.programs is not None:
        return versions
    treated = versions[experiment.treatment]
    return {**versions, treated.version: with_one_more(treated, experiment, verdict, decision)}


def start_experiment(agent: AgentAdapters, move: StartExperiment, decision: Decision) -> AgentAdapters:
    """One at a time beside the watch, not while frozen, and by itself not while cooling down.

    A probation, which older ledgers have, was checked when it was decided.
    """
    experiment = move.experiment
    refuse_if_frozen(agent)
    if experiment.kind == "watch":
        _check_watch(agent, experiment)
        return replace_adapters(agent, watch=experiment)
    refuse_if_running(agent)
    refuse_if_cooling(agent, decision)
    if experiment.kind == "probation":
        return replace_adapters(agent, experiment=experiment)
    if experiment.control != agent.primary:
        raise NotAllowed(f"the control {experiment.control} is not the primary, which is {agent.primary}: start anew")
    _refuse_without_folder(agent, experiment.treatment)
    return with_state(
        agent,
        experiment.treatment,
        AdapterState.CANARY,
        decision,
        candidate=experiment.treatment,
        experiment=experiment,
        cool_down_until=None,
    )


def promote(agent: AgentAdapters, move: Promote, decision: Decision) -> AgentAdapters:
    """Promote the canary of the experiment that proved it; for an operator, any version that the table allows."""
    refuse_if_frozen(agent)
    if move.version == agent.primary:
        raise NotAllowed(f"{move.version} is the primary already")
    if move.experiment_id is not None:
        _check_proof(agent, move)
    elif not decision.by_operator:
        raise NotAllowed(f"{move.version} is promoted only by the experiment that proves it, or by an operator")
    if agent.candidate not in (None, move.version):
        raise NotAllowed(f"{agent.candidate} is in an experiment: roll it back before another version is promoted")
    if (tried := agent.programs.candidate) is not None:
        raise NotAllowed(
            f"program {tried} is tried with {agent.primary}: it has to end, or `ratchet programs rollback`"
        )
    _refuse_without_folder(agent, move.version)
    states = {agent.primary: AdapterState.SUPERSEDED, move.version: AdapterState.STABLE}
    versions = _move_versions(agent, states, decision, "promoted" if agent.candidate else None)
    versions = _with_outcome(versions, agent.watch, "replaced", decision)
    since_base = move.since_base or versions[move.version].since_base
    update = {"replaced": agent.primary, "since_base": since_base}
    versions[move.version] = versions[move.version].model_copy(update=update)
    return replace_adapters(
        agent,
        versions=versions,
        primary=move.version,
        previous=agent.primary,
        candidate=None,
        experiment=move.probation,
        watch=None,
        cool_down_until=None,
        programs=without_experiment(agent.programs, agent.watch, decision, "replaced"),
    )


def settle(agent: AgentAdapters, move: Settle, decision: Decision) -> AgentAdapters:
    """Ends a probation, which older ledgers have; the primary is stable from its promotion on."""
    if move.version != agent.primary:
        raise NotAllowed(f"{move.version} is not the primary, which is {agent.primary}: only a primary becomes stable")
    experiment = agent.experiment
    probation = experiment is not None and experiment.kind == "probation" and experiment.programs is None
    stamp = {"decision": decision.sequence, "since": decision.at}
    versions = {**agent.versions, move.version: agent.versions[move.version].model_copy(update=stamp)}
    if probation:
        versions = _with_outcome(versions, experiment, "settled", decision)
    return replace_adapters(agent, versions=versions, experiment=None if probation else experiment)


def roll_back(agent: AgentAdapters, move: RollBack, decision: Decision) -> AgentAdapters:
    """Roll back the candidate or the primary; with the primary goes the experiment it is part of.

    An experiment of programs is one: both of its arms were answered by the primary.
    """
    if move.version == agent.candidate:
        states = {move.version: AdapterState.ROLLED_BACK}
        versions = _move_versions(agent, states, decision, "rolled_back")
        return replace_adapters(
            agent, versions=versions, candidate=None, experiment=None, cool_down_until=move.cool_down_until
        )
    if move.version != agent.primary:
        raise NotAllowed(f"{move.version} is neither the primary nor the candidate: it serves nothing to roll back")
    target = _way_back(agent, move)
    programs = without_experiment(agent.programs, agent.experiment, decision)
    states = {move.version: AdapterState.ROLLED_BACK, target: AdapterState.STABLE}
    if agent.candidate:
        states[agent.candidate] = AdapterState.ABORTED
    versions = _move_versions(agent, states, decision, "aborted" if agent.candidate else "rolled_back")
    versions = _with_outcome(versions, agent.watch, "rolled_back", decision)
    return replace_adapters(
        agent,
        versions=versions,
        primary=target,
        previous=_previous_version(versions, target),
        candidate=None,
        experiment=None,
        watch=None,
        cool_down_until=move.cool_down_until,
        programs=without_experiment(programs, agent.watch, decision),
    )


def conclude(agent: AgentAdapters, move: Conclude, decision: Decision) -> AgentAdapters:
    """End an experiment: the candidate of a canary leaves; a watch leaves all as it is."""
    if agent.watch is not None and agent.watch.experiment_id == move.experiment_id:
        return _conclude_watch(agent, agent.watch, move, decision)
    experiment = running_experiment(agent, move.experiment_id)
    if move.verdict == "unharmed" and experiment.kind == "canary":
        raise NotAllowed(f"{experiment.experiment_id} is a canary: only a watch ends as unharmed")
    states = {agent.candidate: WITHOUT_A_WINNER[move.verdict]} if agent.candidate else {}
    return replace_adapters(
        agent,
        versions=_move_versions(agent, states, decision, move.verdict),
        candidate=None,
        experiment=None,
        cool_down_until=move.cool_down_until,
    )


def _conclude_watch(
    agent: AgentAdapters, watch: RunningExperiment, move: Conclude, decision: Decision
) -> AgentAdapters:
    versions = _with_outcome(agent.versions, watch, move.verdict, decision)
    if move.since_base is not None:
        entry = versions[watch.treatment].model_copy(update={"since_base": move.since_base})
        versions = {**versions, watch.treatment: entry}
    return replace_adapters(agent, versions=versions, watch=None)


def _way_back(agent: AgentAdapters, move: RollBack) -> str:
    target = move.to or agent.previous
    if target is None:
        raise NotAllowed(f"there is nothing before {move.version} to go back to; name a version, as in --to v1.0.0")
    _refuse_without_folder(agent, target)
    if (state := agent.versions[target].state) is not AdapterState.SUPERSEDED:
        raise NotAllowed(f"{target} is {state}, so nothing can go back to it: name a version that was the primary")
    return target


def _previous_version(versions: dict[str, AdapterEntry], primary: str) -> str | None:
    """The nearest version before this primary that could take over again."""
    seen = {primary}
    version = versions[primary].replaced
    while version is not None and version not in seen:
        entry = versions[version]
        if entry.state is AdapterState.SUPERSEDED and entry.can_serve:
            return version
        seen.add(version)
        version = entry.replaced
    return None


def running_experiment(agent: AgentAdapters, experiment_id: str) -> RunningExperiment:
    """Raises NotAllowed where another one runs, or none."""
    if agent.experiment is None or agent.experiment.experiment_id != experiment_id:
        running = agent.experiment.experiment_id if agent.experiment else "none"
        raise NotAllowed(f"experiment {experiment_id} is not running (running: {running}): it has ended already")
    return agent.experiment


def _check_proof(agent: AgentAdapters, move: Promote) -> None:
    experiment = running_experiment(agent, str(move.experiment_id))
    if experiment.kind != "canary" or experiment.treatment != move.version:
        raise NotAllowed(f"experiment {experiment.experiment_id} tests {experiment.treatment}, not {move.version}")


def _check_watch(agent: AgentAdapters, watch: RunningExperiment) -> None:
    refuse_if_watched(agent)
    if watch.treatment != agent.primary:
        raise NotAllowed(f"{watch.treatment} is not the primary: there is nothing to watch")
    if watch.control not in (agent.previous, BASE_VERSION) or watch.control == agent.primary:
        raise NotAllowed(f"a watch over {agent.primary} must hold back {agent.previous} or {BASE_VERSION}")
    _refuse_without_folder(agent, watch.control)


def refuse_if_watched(agent: AgentAdapters) -> None:
    if agent.watch is not None:
        raise NotAllowed(f"{agent.watch.experiment_id} is still watching: one watch at a time for each agent")


def refuse_if_running(agent: AgentAdapters) -> None:
    if agent.experiment:
        raise NotAllowed(f"experiment {agent.experiment.experiment_id} is still running: one at a time for each agent")


def refuse_if_cooling(agent: AgentAdapters, decision: Decision) -> None:
    if agent.cool_down_until and decision.at < agent.cool_down_until and not decision.by_operator:
        raise NotAllowed(f"cooling down until {agent.cool_down_until:%Y-%m-%d %H:%M:%S} UTC: no experiment starts")


def refuse_if_frozen(agent: AgentAdapters) -> None:
    if agent.frozen:
        raise NotAllowed(
            f"frozen by {agent.frozen.who} since {agent.frozen.since:%Y-%m-%d %H:%M} UTC ({agent.frozen.reason}); "
            f"lift it with `ratchet adapters unfreeze`"
        )


def _refuse_without_folder(agent: AgentAdapters, version: str) -> None:
    if not entry_of(agent, version).can_serve:
        raise NotAllowed(f"the folder of {version} was removed, so it can't serve; choose a version that has one")
