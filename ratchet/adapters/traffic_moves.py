"""The moves that put versions of the adapter, or programs, into traffic and take them out. Pure.

One experiment at a time, of either contest. A roll-back is never refused for being frozen, cooling down or in an
experiment: it is the way back to safety. Both arms of an experiment of programs are answered by the primary version, so
it ends with that one. Whether runners have a program is not known here.
"""

from __future__ import annotations

from ratchet.adapters.contest import Verdict, add_outcome, entry_of, label, put_entry, set_aliases, set_state
from ratchet.service.errors import NotAllowed
from schemas.messages.work import BASE_VERSION
from schemas.records.decision import (
    Conclude,
    Contest,
    Decision,
    Promote,
    PromoteProgram,
    RollBack,
    RollBackProgram,
    RunningExperiment,
    Settle,
    SettleProgram,
    StartExperiment,
    TryProgram,
)
from schemas.records.registry import AgentAdapters, EntryState

OTHER: dict[Contest, Contest] = {"adapters": "programs", "programs": "adapters"}
CHANGE = {"adapters": "since_base", "programs": "since_first"}
"""The field of an entry that says what it has changed, all together."""


def try_program(agent: AgentAdapters, move: TryProgram, decision: Decision) -> AgentAdapters:
    """An operator's word, about one program at a time, and against one that answers by default."""
    programs = agent.programs
    _refuse_if_frozen(agent)
    if not decision.by_operator:
        raise NotAllowed(f"program {move.program} is tried only where an operator asks for it")
    if programs.primary is None:
        raise NotAllowed(
            f"no program answers by default yet, so there is none to try {move.program} against: say which one does, "
            "with `ratchet programs promote`"
        )
    _refuse_primary(agent, move)
    if (busy := programs.asked or programs.candidate) is not None:
        raise NotAllowed(f"program {busy} is tried already: one at a time; `ratchet programs rollback` calls it off")
    return set_state(agent, "programs", move.program, EntryState.ASKED, decision)


def start_experiment(agent: AgentAdapters, move: StartExperiment, decision: Decision) -> AgentAdapters:
    """One at a time beside the watch, not while frozen, and by itself not while cooling down.

    A probation, which older ledgers have, was checked when it was decided.
    """
    experiment = move.experiment
    contest, (treatment, control) = experiment.contest, experiment.arms
    _refuse_if_frozen(agent)
    if experiment.programs is not None:
        _check_programs(agent, experiment)
    if experiment.kind == "watch":
        _check_watch(agent, experiment)
        return _note_revisions(agent.model_copy(update={"watch": experiment}), experiment)
    if agent.experiment:
        raise NotAllowed(f"experiment {agent.experiment.experiment_id} is still running: one at a time for each agent")
    _refuse_if_cooling(agent, decision)
    if experiment.kind == "probation":
        return _note_revisions(agent.model_copy(update={"experiment": experiment}), experiment)
    if control != (primary := agent.contest(contest).primary):
        raise NotAllowed(f"the control {control} is not the primary, which is {primary}: start anew")
    _refuse_without_folder(agent, contest, treatment)
    agent = set_state(agent, contest, treatment, EntryState.CANARY, decision)
    agent = set_aliases(_note_revisions(agent, experiment), contest, candidate=treatment)
    return agent.model_copy(update={"experiment": experiment, "cool_down_until": None})


def promote(agent: AgentAdapters, move: Promote | PromoteProgram, decision: Decision) -> AgentAdapters:
    """Promote the canary of the experiment that proved it; for an operator, whatever the table allows."""
    contest, named = move.contest, label(move.contest, move.name)
    before = agent.contest(contest)
    _refuse_if_frozen(agent)
    _refuse_primary(agent, move)
    if move.experiment_id is not None:
        _check_proof(agent, move)
    elif not decision.by_operator:
        raise NotAllowed(f"{named} is promoted only by the experiment that proves it, or by an operator")
    if before.candidate not in (None, move.name):
        raise NotAllowed(
            f"{label(contest, before.candidate)} is in an experiment: roll it back before another is promoted"
        )
    other = OTHER[contest]
    if (tried := agent.contest(other).candidate) is not None:
        raise NotAllowed(f"{label(other, tried)} is in an experiment: it has to end, or `ratchet {other} rollback`")
    _refuse_without_folder(agent, contest, move.name)
    measured = {CHANGE[contest]: move.change} if move.change else {}
    agent = _end_what_was_about(agent, contest, "promoted" if before.candidate else None, "replaced", decision)
    if before.primary is not None:
        agent = set_state(agent, contest, before.primary, EntryState.SUPERSEDED, decision)
    agent = set_state(agent, contest, move.name, EntryState.STABLE, decision, replaced=before.primary, **measured)
    agent = set_aliases(agent, contest, primary=move.name, previous=before.primary, candidate=None)
    return agent.model_copy(update={"experiment": move.probation, "cool_down_until": None})


def settle(agent: AgentAdapters, move: Settle | SettleProgram, decision: Decision) -> AgentAdapters:
    """Ends a probation, which older ledgers have; the primary is stable from its promotion on."""
    if move.name != (primary := agent.contest(move.contest).primary):
        raise NotAllowed(
            f"{label(move.contest, move.name)} is not the primary, which is {primary}: only a primary becomes stable"
        )
    stamp = {"decision": decision.sequence, "since": decision.at}
    agent = put_entry(agent, entry_of(agent, move.contest, move.name).model_copy(update=stamp))
    experiment = agent.experiment
    if experiment is None or experiment.kind != "probation" or experiment.contest != move.contest:
        return agent
    return add_outcome(agent, experiment, "settled", decision).model_copy(update={"experiment": None})


def roll_back(agent: AgentAdapters, move: RollBack | RollBackProgram, decision: Decision) -> AgentAdapters:
    """Roll back what waits to be tried, the candidate, or the primary; with that goes the experiment it is part of."""
    contest, before = move.contest, agent.contest(move.contest)
    cool_down = {"cool_down_until": move.cool_down_until}
    if move.name == before.asked:
        return set_state(agent, contest, move.name, EntryState.ABORTED, decision)
    if move.name == before.candidate:
        agent = set_state(agent, contest, move.name, EntryState.ROLLED_BACK, decision)
        agent = set_aliases(add_outcome(agent, agent.experiment, "rolled_back", decision), contest, candidate=None)
        return agent.model_copy(update={"experiment": None} | cool_down)
    if move.name != before.primary:
        raise NotAllowed(
            f"{label(contest, move.name)} is neither the primary nor the candidate: it serves nothing to roll back"
        )
    target = _way_back(agent, move)
    verdict: Verdict = "aborted" if before.candidate else "rolled_back"
    agent = _end_what_was_about(agent, contest, verdict, "rolled_back", decision)
    agent = set_state(agent, contest, move.name, EntryState.ROLLED_BACK, decision)
    if before.candidate is not None:
        agent = set_state(agent, contest, before.candidate, EntryState.ABORTED, decision)
    if target is not None:  # also where it is tried again by now
        agent = set_state(agent, contest, target, EntryState.STABLE, decision)
    previous = _previous(agent, contest, target)
    return set_aliases(agent, contest, primary=target, previous=previous, candidate=None).model_copy(update=cool_down)


def conclude(agent: AgentAdapters, move: Conclude, decision: Decision) -> AgentAdapters:
    """End an experiment: the candidate of a canary leaves; a watch leaves all as it is."""
    if (watch := agent.watch) is not None and watch.experiment_id == move.experiment_id:
        agent = add_outcome(agent, watch, move.verdict, decision).model_copy(update={"watch": None})
        if move.since_base is None or watch.contest == "programs":
            return agent
        return put_entry(agent, agent.versions[watch.treatment].model_copy(update={"since_base": move.since_base}))
    experiment = _running_experiment(agent, move.experiment_id)
    if move.verdict == "unharmed" and experiment.kind == "canary":
        raise NotAllowed(f"{experiment.experiment_id} is a canary: only a watch ends as unharmed")
    contest = experiment.contest
    if (candidate := agent.contest(contest).candidate) is not None:
        to = EntryState.ABORTED if move.verdict == "aborted" else EntryState.INCONCLUSIVE
        agent = set_state(agent, contest, candidate, to, decision)
    agent = set_aliases(add_outcome(agent, experiment, move.verdict, decision), contest, candidate=None)
    return agent.model_copy(update={"experiment": None, "cool_down_until": move.cool_down_until})


def _end_what_was_about(
    agent: AgentAdapters, contest: Contest, verdict: Verdict | None, of_watch: Verdict, decision: Decision
) -> AgentAdapters:
    """End the experiment, by this verdict, and the watch over a primary that gives way; those of programs with either.

    A program that was tried is out with the version that answered for it.
    """
    for running, its_verdict in ((agent.experiment, verdict), (agent.watch, of_watch)):
        if running is None or (contest == "programs" and running.contest == "adapters"):
            continue
        is_ground = running.contest != contest
        if its_verdict is not None:
            ended = "aborted" if is_ground and its_verdict == "rolled_back" else its_verdict
            agent = add_outcome(agent, running, ended, decision)
        agent = agent.model_copy(update={"watch" if running is agent.watch else "experiment": None})
        if is_ground and (tried := agent.programs.candidate) is not None:
            agent = set_state(agent, "programs", tried, EntryState.ABORTED, decision)
            agent = set_aliases(agent, "programs", candidate=None)
    return agent


def _way_back(agent: AgentAdapters, move: RollBack | RollBackProgram) -> str | None:
    """Return what takes the primary's place; None: the dealing to all programs."""
    previous = agent.contest(move.contest).previous
    if isinstance(move, RollBackProgram):
        return previous
    target = move.to or previous
    if target is None:
        raise NotAllowed(f"there is nothing before {move.version} to go back to; name a version, as in --to v1.0.0")
    _refuse_without_folder(agent, move.contest, target)
    if (state := agent.versions[target].state) is not EntryState.SUPERSEDED:
        raise NotAllowed(f"{target} is {state}, so nothing can go back to it: name a version that was the primary")
    return target


def _previous(agent: AgentAdapters, contest: Contest, primary: str | None) -> str | None:
    """Return the nearest one before this primary that could take over again."""
    entries, seen = agent.contest(contest).entries, {primary}
    name = entries[primary].replaced if primary is not None else None
    while name is not None and name not in seen:
        entry = entries[name]
        if entry.state is EntryState.SUPERSEDED and entry.can_serve:
            return name
        seen.add(name)
        name = entry.replaced
    return None


def _note_revisions(agent: AgentAdapters, experiment: RunningExperiment) -> AgentAdapters:
    """Write down which revisions of programs are compared."""
    arms = experiment.programs
    for one in (arms.treatment, arms.control) if arms else ():
        if (entry := agent.programs.entries.get(one.name)) is not None:
            agent = put_entry(agent, entry.model_copy(update={"revision": one.revision}))
    return agent


def _running_experiment(agent: AgentAdapters, experiment_id: str) -> RunningExperiment:
    """Raises NotAllowed where another one runs, or none."""
    if agent.experiment is None or agent.experiment.experiment_id != experiment_id:
        running = agent.experiment.experiment_id if agent.experiment else "none"
        raise NotAllowed(f"experiment {experiment_id} is not running (running: {running}): it has ended already")
    return agent.experiment


def _check_proof(agent: AgentAdapters, move: Promote | PromoteProgram) -> None:
    experiment = _running_experiment(agent, str(move.experiment_id))
    tests = experiment.kind, experiment.contest, experiment.arms[0]
    if tests != ("canary", move.contest, move.name):
        raise NotAllowed(f"experiment {experiment.experiment_id} tests {experiment.arms[0]}, not {move.name}")


def _check_programs(agent: AgentAdapters, experiment: RunningExperiment) -> None:
    if experiment.arms[0] == experiment.arms[1]:
        raise NotAllowed(f"{experiment.experiment_id} compares a program with itself")
    if {experiment.treatment, experiment.control} != {agent.primary}:
        raise NotAllowed(
            f"both arms of an experiment of programs are answered by the primary version, which is {agent.primary}, "
            f"not by {experiment.treatment} and {experiment.control}"
        )


def _check_watch(agent: AgentAdapters, watch: RunningExperiment) -> None:
    if agent.watch is not None:
        raise NotAllowed(f"{agent.watch.experiment_id} is still watching: one watch at a time for each agent")
    contest, (treatment, control) = agent.contest(watch.contest), watch.arms
    if treatment != contest.primary:
        raise NotAllowed(f"{label(watch.contest, treatment)} is not the primary: there is nothing to watch")
    before = [contest.previous, *([BASE_VERSION] if watch.contest == "adapters" else [])]
    if control not in before or control == contest.primary:
        named = " or ".join(map(str, before))
        raise NotAllowed(f"a watch over {label(watch.contest, treatment)} must hold back {named}, not {control}")
    _refuse_without_folder(agent, watch.contest, control)


def _refuse_primary(agent: AgentAdapters, move: TryProgram | Promote | PromoteProgram) -> None:
    if move.name == agent.contest(move.contest).primary:
        raise NotAllowed(f"{label(move.contest, move.name)} is the primary already")


def _refuse_if_cooling(agent: AgentAdapters, decision: Decision) -> None:
    if agent.cool_down_until and decision.at < agent.cool_down_until and not decision.by_operator:
        raise NotAllowed(f"cooling down until {agent.cool_down_until:%Y-%m-%d %H:%M:%S} UTC: no experiment starts")


def _refuse_if_frozen(agent: AgentAdapters) -> None:
    if agent.frozen:
        raise NotAllowed(
            f"frozen by {agent.frozen.who} since {agent.frozen.since:%Y-%m-%d %H:%M} UTC ({agent.frozen.reason}); "
            f"lift it with `ratchet adapters unfreeze`"
        )


def _refuse_without_folder(agent: AgentAdapters, contest: Contest, name: str) -> None:
    if contest == "adapters" and not entry_of(agent, contest, name).can_serve:
        raise NotAllowed(f"the folder of {name} was removed, so it can't serve; choose a version that has one")
