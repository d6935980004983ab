"""Applies each decision to the registry, as pure functions: (adapters of an agent, move, decision) -> the new ones.

Replaying the ledger is a fold over `apply`. Moves that put versions or programs into traffic, or take them out, are in
traffic_moves.py; the table of all is in contest.py. It reads no file and knows no clock.
"""

from __future__ import annotations

from typing import assert_never

from pydantic import ValidationError

from ratchet.adapters.contest import check_invariants, entry_of, put_entry, set_state
from ratchet.adapters.traffic_moves import conclude, promote, roll_back, settle, start_experiment, try_program
from ratchet.service.errors import NotAllowed
from schemas.messages.work import BASE_VERSION
from schemas.records.decision import (
    Archive,
    Conclude,
    Decision,
    Distrust,
    Freeze,
    FreezeCascade,
    MoveCascade,
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
    UnfreezeCascade,
    Validate,
)
from schemas.records.registry import AdapterEntry, AgentAdapters, CascadeStanding, EntryState, FrozenBy, Registry


def apply(registry: Registry, decision: Decision) -> Registry:
    """The registry after the decision. Raises NotAllowed, with a sentence, if its rules forbid the move."""
    agent_id = decision.agent_id
    try:
        after = check_invariants(_apply_move(registry.agent(agent_id), decision))
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
            return set_state(agent, "adapters", move.name, EntryState.VALIDATED, decision, replayed=move.replayed)
        case RejectVersion() | RejectProgram() as move:
            return set_state(agent, move.contest, move.name, EntryState.REJECTED, decision)
        case TryProgram() as move:
            return try_program(agent, move, decision)
        case StartExperiment() as move:
            return start_experiment(agent, move, decision)
        case Promote() | PromoteProgram() as move:
            return promote(agent, move, decision)
        case Settle() | SettleProgram() as move:
            return settle(agent, move, decision)
        case RollBack() | RollBackProgram() as move:
            return roll_back(agent, move, decision)
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
            return agent.model_copy(update={"distrusted": None, "anchored": anchored})
        case MoveCascade() as move:
            return move_cascade(agent, move, decision)
        case FreezeCascade():
            return _freeze_cascade(agent, _by(decision))
        case UnfreezeCascade():
            return _freeze_cascade(agent, None)
        case _ as never:
            assert_never(never)


def register(agent: AgentAdapters, move: Register, decision: Decision) -> AgentAdapters:
    """A version is registered once, and its parent before it."""
    if move.version in agent.versions:
        raise NotAllowed(f"{move.version} is registered already; publish the new weights as a new version")
    entry_of(agent, "adapters", move.parent)
    content = move.model_dump(include={"sha256", "folder", "parent", "research_agent"}) | {"base": move.base}
    state = EntryState.RESEARCH if move.research_agent else EntryState.TRAINED
    return set_state(agent, "adapters", move.version, state, decision, **content)


def archive(agent: AgentAdapters, move: Archive, decision: Decision) -> AgentAdapters:
    """Never the base model, and nothing that serves or that a roll-back would restore."""
    if move.version == BASE_VERSION:
        raise NotAllowed(f"{BASE_VERSION} is the base model: it is always kept")
    if move.version in agent.in_traffic:
        raise NotAllowed(f"{move.version} is in use (primary, candidate, previous or in an experiment): it is kept")
    return set_state(agent, "adapters", move.version, EntryState.ARCHIVED, decision)


def remove_folder(agent: AgentAdapters, move: RemoveFolder) -> AgentAdapters:
    entry = entry_of(agent, "adapters", move.version)
    assert isinstance(entry, AdapterEntry)
    if entry.state is not EntryState.ARCHIVED or entry.folder is None:
        raise NotAllowed(f"{move.version} is {entry.state}: only an archived version's folder is removed, once")
    return put_entry(agent, entry.model_copy(update={"folder": None}))


def freeze(agent: AgentAdapters, decision: Decision) -> AgentAdapters:
    if agent.frozen:
        raise NotAllowed(f"frozen already, by {agent.frozen.who} since {agent.frozen.since:%Y-%m-%d %H:%M} UTC")
    return agent.model_copy(update={"frozen": _by(decision)})


def distrust(agent: AgentAdapters, decision: Decision) -> AgentAdapters:
    """A second one changes nothing: what was known first counts."""
    return agent.model_copy(update={"distrusted": agent.distrusted or _by(decision)})


def unfreeze(agent: AgentAdapters) -> AgentAdapters:
    if not agent.frozen:
        raise NotAllowed("not frozen, so there is nothing to lift")
    return agent.model_copy(update={"frozen": None})


def move_cascade(agent: AgentAdapters, move: MoveCascade, decision: Decision) -> AgentAdapters:
    """Raise by one step, not while frozen. The attempt never goes back: its number bounds the errors of all of them."""
    before, after = agent.cascade, move.state
    frozen = None if before is None else before.frozen
    if before is None and move.cause not in ("begin", "set"):
        raise NotAllowed("it has no cascade: RATCHET_CASCADE begins one")
    if before is not None:
        least = before.state.attempt + (move.cause != "raise")
        if after.attempt < least:
            raise NotAllowed(f"the attempt {after.attempt} was made before: the next one is {least}")
        if move.cause == "raise" and after.step != before.state.step + 1:
            raise NotAllowed(f"a proof raises the share from step {before.state.step} by one, not to {after.step}")
    if move.cause == "set" and not decision.by_operator:
        raise NotAllowed("the share is set by an operator alone")
    if move.cause == "raise" and (frozen or agent.frozen):
        raise NotAllowed("frozen: the small model's share is not raised")
    standing = CascadeStanding(state=after, decision=decision.sequence, since=decision.at, frozen=frozen)
    return agent.model_copy(update={"cascade": standing})


def _freeze_cascade(agent: AgentAdapters, by: FrozenBy | None) -> AgentAdapters:
    if agent.cascade is None:
        raise NotAllowed("it has no cascade")
    if (agent.cascade.frozen is None) == (by is None):
        raise NotAllowed("its cascade is frozen already" if by else "its cascade is not frozen")
    return agent.model_copy(update={"cascade": agent.cascade.model_copy(update={"frozen": by})})


def _by(decision: Decision) -> FrozenBy:
    return FrozenBy(who=decision.who, since=decision.at, reason=decision.reason)
