"""/v1/adapters and /v1/decisions: versions and where they stand, what was decided on them, and an operator's moves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Annotated, TypeVar

from fastapi import APIRouter, Path, Query

from ratchet.adapters.agent_view import agent_view, begin, version_fields
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.operator_service import OperatorService, chosen_agents
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.verification import verify_registry
from ratchet.http.access.guard import CallerOf
from ratchet.http.access.roles import Caller
from ratchet.http.operation import OPERATOR, SUBMITTER, VIEWER, Effect, operation
from ratchet.http.paging import MOST, NEWEST, Cursor, Limit, cursor_of, sequence_of
from ratchet.http.problem import Fault, Problem, problems
from ratchet.http.work import Threads
from ratchet.logs.tenants import AgentTenants
from ratchet.runs.progress import training_report
from ratchet.service.errors import NotFound
from schemas.api.adapters import (
    AgentView,
    FreezeRequest,
    PromoteRequest,
    RollBackRequest,
    TrainingView,
    Verification,
    VersionDetail,
    VersionView,
)
from schemas.api.page import Page
from schemas.api.status import HeldUp
from schemas.messages.base import AdapterVersion, AgentId
from schemas.records.decision import Decision, Freeze, Trust, Unfreeze
from schemas.records.registry import Registry
from services.orchestrator.observation.watcher import DecisionBook
from services.orchestrator.promotion.arms import ReadRegistry

MOVED = problems(404, 409, 422, 503)
WhichAgent = Annotated[AgentId, Path(description="The agent, such as 'small'.")]
WhichVersion = Annotated[AdapterVersion, Path(description="Such as 'v1.0.2'.")]
VERIFIED_FOR_S = 60.0
HeldUps = Mapping[str, Sequence[HeldUp]]
"""Held-up candidates by agent."""
V = TypeVar("V", bound=VersionView)
NOT_IN_A_NAME = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class OperatorMoves:
    """Applies callers' moves. One is in effect when `apply` returns.

    It uses other threads than those that read: a rollback waits for nobody who looks at old tasks.
    """

    store: RegistryStore
    agents: tuple[str, ...]
    max_rank: int
    read_registry: ReadRegistry
    tenants: AgentTenants

    async def apply(self, agent_id: str, caller: Caller, move: Callable[[OperatorService], Registry]) -> Registry:
        """Return the registry after the move. Raises NotFound for an agent that the caller may not change."""
        (name,) = chosen_agents(self.agents, await asyncio.to_thread(self.store.read), agent_id)
        if not caller.may_change(self.tenants.of(name)):
            raise NotFound(f"no agent {agent_id!r} of this tenant")
        service = OperatorService(self.store, name, self.max_rank, recorded_name(caller))
        registry = await asyncio.to_thread(move, service)
        await self.read_registry(name)
        return registry


def adapters_router(
    moves: OperatorMoves, book: DecisionBook, threads: Threads, held_up: Callable[[], HeldUps]
) -> APIRouter:
    """`held_up`: candidates that wait for something else than traffic; called on the event loop."""
    router = APIRouter(tags=["adapters"])
    verifier = Verifier(moves, threads)

    async def apply_move(agent_id: str, caller: Caller, move: Callable[[OperatorService], Registry]) -> AgentView:
        return told_of(agent_view(await moves.apply(agent_id, caller, move), agent_id), held_up())

    def usable(names: Sequence[str], caller: Caller, asked: str | None) -> list[str]:
        found = [name for name in names if caller.may_use(moves.tenants.of(name))]
        if not found and asked is not None:
            raise NotFound(f"no agent {asked!r} of this tenant")
        return found

    @router.get("/v1/adapters", responses=problems(404, 422, 503))
    @operation(
        VIEWER, SUBMITTER, OPERATOR, reach="own", title="List adapters", tool="list_adapters", resource="registry"
    )
    async def adapters(
        caller: CallerOf,
        agent_id: Annotated[AgentId | None, Query(description="Only this agent.")] = None,
        limit: Annotated[
            int | None,
            Query(ge=1, le=MOST, description="Of each agent so many of the newest versions, and those in use; or all."),
        ] = None,
        cursor: Cursor = None,
    ) -> Page[AgentView]:
        """List each agent's adapter versions: which is primary (answers the users), which is candidate (being tried on
        a share of the traffic), each version's state in a sentence, its parent, and how its experiments ended. A cursor
        goes with `agent_id` and `limit`, and leads to that agent's older versions.
        """
        before = sequence_of(cursor)
        if before is not None and (agent_id is None or limit is None):
            fault = Fault(pointer="cursor", detail="goes with `agent_id` and `limit`")
            raise Problem(422, "A cursor of what?", "give `agent_id` and `limit`, too", "cursor", faults=[fault])

        held = held_up()

        def read() -> Page[AgentView]:
            registry = moves.store.read()
            names = usable(chosen_agents(moves.agents, registry, agent_id), caller, agent_id)
            items = [told_of(agent_view(registry, name, limit, before), held) for name in names]
            at = begin(min(len(registry.agent(names[0]).versions), NEWEST if before is None else before), limit)
            return Page(items=items, next=cursor_of([at]) if agent_id is not None and at > 0 else None)

        return await threads.run(read)

    @router.get("/v1/adapters/{agent_id}", responses=problems(404, 422, 503))
    @operation(VIEWER, SUBMITTER, OPERATOR, reach="own")
    async def agent(agent_id: WhichAgent, caller: CallerOf) -> AgentView:
        """Show one agent's versions and aliases."""
        registry = await threads.run(moves.store.read)
        (name,) = usable(chosen_agents(moves.agents, registry, agent_id), caller, agent_id)
        return told_of(agent_view(registry, name), held_up())

    @router.get("/v1/adapters/{agent_id}/{version}", responses=problems(404, 422, 503))
    @operation(VIEWER, SUBMITTER, OPERATOR, reach="own", title="Show an adapter", tool="show_adapter")
    async def version(agent_id: WhichAgent, version: WhichVersion, caller: CallerOf) -> VersionDetail:
        """Show one adapter version whole: its card (data window, hyperparameters, metrics), its training curves, and
        every decision on it with the evidence. It tells why a version was promoted, rejected or rolled back.
        """
        usable([agent_id], caller, agent_id)
        detail = await threads.run(version_detail, moves, book, agent_id, version)
        return with_hold(detail, held_up().get(detail.agent_id, ()))

    @router.post("/v1/adapters/{agent_id}/promote", responses=MOVED)
    @operation(OPERATOR, effect=Effect.REPLACES, reach="own", title="Promote an adapter", tool="promote")
    async def promote(agent_id: WhichAgent, asked: PromoteRequest, caller: CallerOf) -> AgentView:
        """Make a version the primary by hand, so that it answers all users at once, without the proof of an experiment.
        A watch begins: the old primary keeps a small share and can still win.
        """
        return await apply_move(
            agent_id, caller, lambda service: service.promote("adapters", asked.version, asked.reason)
        )

    @router.post("/v1/adapters/{agent_id}/rollback", responses=MOVED)
    @operation(OPERATOR, effect=Effect.REPLACES, reach="own", title="Roll an adapter back", tool="rollback")
    async def rollback(agent_id: WhichAgent, asked: RollBackRequest, caller: CallerOf) -> AgentView:
        """Take a version out of the traffic at once: a candidate ends its experiment, a primary is replaced by the one
        before it. Works while frozen, too. A harmful candidate is rolled back by the fleet itself.
        """
        return await apply_move(
            agent_id, caller, lambda service: service.roll_back("adapters", asked.version, asked.reason, asked.to)
        )

    @router.post("/v1/adapters/{agent_id}/freeze", responses=MOVED)
    @operation(OPERATOR, effect=Effect.SETS, reach="own", title="Freeze an agent", tool="freeze")
    async def freeze(agent_id: WhichAgent, asked: FreezeRequest, caller: CallerOf) -> AgentView:
        """Stop all promotion and new experiments of an agent; what does harm is still rolled back."""
        return await apply_move(agent_id, caller, lambda service: service.decide(Freeze(), asked.reason))

    @router.post("/v1/adapters/{agent_id}/unfreeze", responses=MOVED)
    @operation(OPERATOR, effect=Effect.SETS, reach="own", title="Unfreeze an agent", tool="unfreeze")
    async def unfreeze(agent_id: WhichAgent, asked: FreezeRequest, caller: CallerOf) -> AgentView:
        """Let a frozen agent learn again: experiments begin, and what proves better is promoted."""
        return await apply_move(agent_id, caller, lambda service: service.decide(Unfreeze(), asked.reason))

    @router.post("/v1/adapters/{agent_id}/reanchor", responses=MOVED)
    @operation(OPERATOR, effect=Effect.SETS, reach="own", title="Take the scorer as it is now", tool="reanchor")
    async def reanchor(agent_id: WhichAgent, asked: FreezeRequest, caller: CallerOf) -> AgentView:
        """Accept a scorer that has drifted because it was changed on purpose: its scores of the anchors become the
        measure, and learning goes on. Once the scorer is as it was, learning goes on by itself.
        """
        return await apply_move(agent_id, caller, lambda service: service.decide(Trust(anchor_anew=True), asked.reason))

    @router.get("/v1/decisions/verification", responses=problems(503))
    @operation(VIEWER, OPERATOR)
    async def verification() -> Verification:
        """Make the check that `ratchet adapters verify` makes: is all as it was decided, and signed?

        At most once a minute.
        """
        return await verifier.verification()

    @router.get("/v1/decisions", responses=problems(422, 503))
    @operation(VIEWER, OPERATOR, title="List decisions", resource="decisions")
    async def decisions(
        agent_id: Annotated[AgentId | None, Query(description="Only on this agent's adapters.")] = None,
        version: Annotated[AdapterVersion | None, Query(description="Only on this version.")] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Page[Decision]:
        """List what was promoted, rolled back, frozen …: by whom, why, and on what evidence. The newest first."""
        before = sequence_of(cursor)
        found = await threads.run(book.page, limit=limit + 1, before=before, agent_id=agent_id, version=version)
        following = cursor_of([found[limit - 1].sequence]) if len(found) > limit else None
        return Page(items=found[:limit], next=following)

    return router


def told_of(view: AgentView, held: HeldUps) -> AgentView:
    """Return the view with what its candidates wait for."""
    of_it = held.get(view.agent_id, ())
    return view.model_copy(update={"versions": [with_hold(one, of_it) for one in view.versions]}) if of_it else view


def with_hold(one: V, held: Sequence[HeldUp]) -> V:
    why = next((hold.sentence for hold in held if hold.name == one.version), None)
    return one if why is None else one.model_copy(update={"sentence": f"{why}."})


def recorded_name(caller: Caller) -> str:
    """Under which a decision of this caller's is recorded."""
    return NOT_IN_A_NAME.sub("", caller.name)[:100] or "unknown"


class Verifier:
    """Reads every byte of every adapter, so one at a time, and what it found stands for a minute."""

    def __init__(self, moves: OperatorMoves, threads: Threads) -> None:
        self._moves = moves
        self._threads = threads
        self._lock = asyncio.Lock()
        self._found: tuple[float, Verification] | None = None

    async def verification(self) -> Verification:
        async with self._lock:
            if self._found is None or monotonic() - self._found[0] > VERIFIED_FOR_S:
                limits = AdapterLimits(self._moves.max_rank)
                found = await self._threads.run(verify_registry, self._moves.store, limits)
                self._found = monotonic(), found
            return self._found[1]


def version_detail(moves: OperatorMoves, book: DecisionBook, agent_id: str, version: str) -> VersionDetail:
    """Blocks. Raises NotFound, RegistryError."""
    registry = moves.store.read()
    agent = registry.agent(*chosen_agents(moves.agents, registry, agent_id))
    if (entry := agent.versions.get(version)) is None:
        raise NotFound(f"agent {agent_id} has no version {version}; it has {', '.join(agent.versions)}")
    report = training_report(moves.store.folder / entry.folder, version) if entry.folder else None
    return VersionDetail.model_validate(
        version_fields(agent, entry)
        | {
            "agent_id": agent_id,
            "card": report and report.card,
            "training": report and TrainingView(counts=report.counts, curves=report.curves),
            "decisions": book.decisions_on(agent_id, version),
        }
    )
