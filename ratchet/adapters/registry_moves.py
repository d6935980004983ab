"""Applies each decision to the registry, as pure functions: (adapters of an agent, move, decision) -> the new ones.

Replaying the ledger is a fold over `apply`. Moves that put versions into traffic or take them out are in
traffic_moves.py, those of programs in program_moves.py. It reads no file and knows no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from pydantic import ValidationError

from ratchet.adapters.program_moves import (
    conclude_program,
    promote_program,
    reject_program,
    roll_back_program,
    settle_program,
    start_experiment_of_programs,
    try_program,
)
from ratchet.adapters.traffic_moves import (
    conclude,
    entry_of,
    promote,
    replace_adapters,
    roll_back,
    settle,
    start_experiment,
    validate,
    with_state,
)
from ratchet.service.errors import NotAllowed
from schemas.messages.work import BASE_VERSION
from schemas.records.adapter_state import AdapterState
from schemas.records.decision import (
    Archive,
    Conclude,
    Decision,
    Distrust,
    Freeze,
    Promote,
    PromoteProgram,
    Register,
    RejectProgram,
    RejectVersion,
    RemoveFolder,
    RollBack,
    RollBackProgram,
    Settle,
    SettleProgram,
    SignWith,
    StartExperiment,
    Trust,
    TryProgram,
    Unfreeze,
    Validate,
)
from schemas.records.registry import AdapterEntry, AgentAdapters, FrozenBy, Registry


def fold(decisions: Iterable[Decision], registry: Registry | None = None) -> Registry:
    """The registry after all of them, in order. The marks of where it stands in the ledger stay as they were."""
    registry = registry or Registry()
    for decision in decisions:
        registry = apply(registry, decision)
    return registry


def apply(registry: Registry, decision: Decision) -> Registry:
    """The registry after the decision. Raises NotAllowed, with a sentence, if its rules forbid the move."""
    agent_id = decision.agent_id
    try:
        after = _apply_move(registry.agent(agent_id), decision)
    except NotAllowed as error:
        raise NotAllowed(f"agent {agent_id}: {error}") from None
    except ValidationError as error:
        raise NotAllowed(f"agent {agent_id}: {decision.move.kind} would break the registry: {error}") from error
    agents = {**registry.agents, agent_id: after}
    return registry.model_copy(update={"agents": agents, "revision": decision.sequence})


def _apply_move(agent: AgentAdapters, decision: Decision) -> AgentAdapters:
    match decision.move:
        case Register() as move:
            return register(agent, move, decision)
        case Validate() as move:
            return validate(agent, move, decision)
        case RejectVersion() as move:
            return reject(agent, move, decision)
        case StartExperiment() as move if move.experiment.programs is not None:
            return start_experiment_of_programs(agent, move, decision)
        case StartExperiment() as move:
            return start_experiment(agent, move, decision)
        case Promote() as move:
            return promote(agent, move, decision)
        case Settle() as move:
            return settle(agent, move, decision)
        case RollBack() as move:
            return roll_back(agent, move, decision)
        case Conclude() as move if _is_of_programs(agent, move):
            return conclude_program(agent, move, decision)
        case Conclude() as move:
            return conclude(agent, move, decision)
        case Archive() as move:
            return archive(agent, move, decision)
        case RemoveFolder() as move:
            return remove_folder(agent, move)
        case Freeze():
            return freeze(agent, decision)
        case Unfreeze():
            return unfreeze(agent)
        case SignWith():
            return agent
        case Distrust():
            return distrust(agent, decision)
        case Trust() as move:
            anchored = decision.sequence if move.anchor_anew else agent.anchored
            return replace_adapters(agent, distrusted=None, anchored=anchored)
        case TryProgram() as move:
            return try_program(agent, move, decision)
        case RejectProgram() as move:
            return reject_program(agent, move, decision)
        case PromoteProgram() as move:
            return promote_program(agent, move, decision)
        case SettleProgram() as move:
            return settle_program(agent, move, decision)
        case RollBackProgram() as move:
            return roll_back_program(agent, move, decision)
        case _ as never:
            assert_never(never)


def _is_of_programs(agent: AgentAdapters, move: Conclude) -> bool:
    return any(one.experiment_id == move.experiment_id and one.programs is not None for one in agent.running)


def register(agent: AgentAdapters, move: Register, decision: Decision) -> AgentAdapters:
    """A version is registered once, and its parent before it."""
    if move.version in agent.versions:
        raise NotAllowed(f"{move.version} is registered already; publish the new weights as a new version")
    entry_of(agent, move.parent)
    entry = AdapterEntry(
        version=move.version,
        state=AdapterState.TRAINED,
        decision=decision.sequence,
        since=decision.at,
        sha256=move.sha256,
        folder=move.folder,
        parent=move.parent,
        base=move.base,
    )
    return replace_adapters(agent, versions={**agent.versions, move.version: entry})


def reject(agent: AgentAdapters, move: RejectVersion, decision: Decision) -> AgentAdapters:
    """One that was never registered, since its folder is missing or another, is on record without a folder."""
    if move.version in agent.versions:
        return with_state(agent, move.version, AdapterState.REJECTED, decision)
    state = AdapterState.REJECTED
    entry = AdapterEntry(version=move.version, state=state, decision=decision.sequence, since=decision.at)
    return replace_adapters(agent, versions={**agent.versions, move.version: entry})


def archive(agent: AgentAdapters, move: Archive, decision: Decision) -> AgentAdapters:
    """Never the base model, and nothing that serves or that a roll-back would restore."""
    if move.version == BASE_VERSION:
        raise NotAllowed(f"{BASE_VERSION} is the base model: it is always kept")
    if move.version in agent.in_traffic:
        raise NotAllowed(f"{move.version} is in use (primary, candidate, previous or in an experiment): it is kept")
    return with_state(agent, move.version, AdapterState.ARCHIVED, decision)


def remove_folder(agent: AgentAdapters, move: RemoveFolder) -> AgentAdapters:
    entry = entry_of(agent, move.version)
    if entry.state is not AdapterState.ARCHIVED or entry.folder is None:
        raise NotAllowed(f"{move.version} is {entry.state}: only an archived version's folder is removed, once")
    return replace_adapters(agent, versions={**agent.versions, move.version: entry.model_copy(update={"folder": None})})


def freeze(agent: AgentAdapters, decision: Decision) -> AgentAdapters:
    if agent.frozen:
        raise NotAllowed(f"frozen already, by {agent.frozen.who} since {agent.frozen.since:%Y-%m-%d %H:%M} UTC")
    return replace_adapters(agent, frozen=FrozenBy(who=decision.who, since=decision.at, reason=decision.reason))


def distrust(agent: AgentAdapters, decision: Decision) -> AgentAdapters:
    """A second one changes nothing: what was known first counts."""
    by = FrozenBy(who=decision.who, since=decision.at, reason=decision.reason)
    return replace_adapters(agent, distrusted=agent.distrusted or by)


def unfreeze(agent: AgentAdapters) -> AgentAdapters:
    if not agent.frozen:
        raise NotAllowed("not frozen, so there is nothing to lift")
    return replace_adapters(agent, frozen=None)
