"""One agent's cascade over its log: routes tasks, and observes units in the order of routing, whenever they end. Pure.

What it routes is written into the lines of the log (`Routing`), so that the same trial comes of them after a kill, and
everybody can check a decision. Units of before the newest decision are passed over: they tested another cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ratchet.experiments.assignment import draw
from ratchet.experiments.cascade import Cascade, CascadePlan, Cut, Move, Pair, Routed
from ratchet.logs.cascaded import big_task_of
from ratchet.logs.names import AUDITS, INTERACTIONS
from ratchet.logs.reader import decode_lines, read
from ratchet.logs.segments import read_start_offsets
from schemas.records.audit import AuditedTask
from schemas.records.cascade import CascadeCut, CascadePlanRecord, CascadeState, Routing
from schemas.records.interaction import Interaction

WAITS = object()
"""Stands for the outcome of a unit that has none yet."""


class CascadeTrial:
    def __init__(self, state: CascadeState, secret: str) -> None:
        """`secret`: keys the draws, so that no client can choose ids by them."""
        self.state = state
        self._secret = secret
        self.cascade = Cascade(plan_of(state.plan), step=state.step, attempt=state.attempt, cut=cut_of(state.cut))
        self.next_order = state.order
        self._units: dict[int, tuple[Routed, object]] = {}
        """Those that are not observed, in the order of routing: an outcome of None leaves one out."""

    def route(self, task_id: str, score: float | None, *, counts: bool) -> Routing:
        """Route the next task. `counts`: it may be a unit."""
        draw_id, cascade = self.state.draw_id, self.cascade
        routed = cascade.route(
            score,
            draw=draw(draw_id, task_id, self._secret),
            audit_draw=draw(f"audit of {draw_id}", task_id, self._secret),
        )
        order, self.next_order = self.next_order, self.next_order + 1
        is_unit = routed.is_drawn and counts
        if is_unit:
            self._units[order] = routed, WAITS
        to = "small" if routed.is_small else "big"
        return Routing(
            order=order,
            score=score,
            to=to,
            is_unit=is_unit,
            is_audited=is_unit and routed.is_audited,
            tested=record_of(cascade.next_cut or cascade.cut) if is_unit else None,
            served=to,
        )

    def take_up(self, routings: Iterable[Routing]) -> None:
        """Go on after a restart: all tasks that were routed since the state began, as they are logged."""
        for routing in sorted(routings, key=lambda one: one.order):
            if routing.order < self.state.order:
                continue
            self.next_order = max(self.next_order, routing.order + 1)
            self.cascade.take_up(routing.score, cut_of(routing.tested) if routing.tested else None)
            if routing.is_unit:
                routed = Routed(routing.score, 0.0, routing.to == "small", True, routing.is_audited)
                self._units[routing.order] = routed, _logged_outcome(routing)

    @property
    def waiting(self) -> list[int]:
        """The units that have no outcome yet."""
        return [order for order, (_, outcome) in self._units.items() if outcome is WAITS]

    def resolve(self, order: int, pair: Pair | None) -> None:
        """The outcome of a unit; None leaves it out. A unit of an older state is passed over."""
        if order in self._units:
            self._units[order] = self._units[order][0], pair

    def observe(self) -> Move | None:
        """Observe units up to the first that has no outcome, or that moves the share: then a new state begins."""
        while self._units:
            order = next(iter(self._units))
            routed, outcome = self._units[order]
            if outcome is WAITS:
                return None
            del self._units[order]
            if isinstance(outcome, Pair) and (move := self.cascade.observe(routed, outcome)) is not None:
                self._units.clear()
                return move
        return None

    def begin(self, state: CascadeState, secret: str) -> None:
        """The state that was decided, or is about to be: what was routed before is no evidence of it."""
        self.state, self._secret = state, secret
        self._units.clear()

    def renew(self, step: int | None = None) -> None:
        """Begin a new attempt, at another step where one is named."""
        self.cascade.renew(step=step)
        self._units.clear()


def _logged_outcome(routing: Routing) -> object:
    """Return what its own line says of a unit: the big model that failed to answer leaves it out, audited or not."""
    if routing.to == "big" and routing.big is None:
        return None
    return WAITS if routing.is_audited else Pair()


def replay_cascade(
    state: CascadeState, secret: str, routings: Iterable[Routing], verdicts: Mapping[int, Pair | None]
) -> CascadeTrial:
    """Return the trial of logged tasks; `verdicts`: of each audited unit by its order, None where it is left out."""
    trial = CascadeTrial(state, secret)
    trial.take_up(routings)
    for order in trial.waiting:
        if order in verdicts:
            trial.resolve(order, verdicts[order])
    return trial


def pair_of(verdict: AuditedTask) -> Pair:
    """Return the fresh judgements of a pair; None where one was given up."""
    small, big = verdict.scores if len(verdict.scores) == 2 else (None, None)
    return Pair(small=small, big=big)


def plan_of(record: CascadePlanRecord) -> CascadePlan:
    return CascadePlan(margin=record.margin, alpha=record.alpha, audit=record.audit)


def cut_of(record: CascadeCut) -> Cut:
    return Cut(record.score, record.share_at)


def record_of(cut: Cut) -> CascadeCut:
    return CascadeCut(score=cut.score, share_at=cut.share_at)


MARK = b'"cascade":'
"""A line without this was routed by no cascade."""


def read_routed(
    logs_dir: Path, agent_id: str, state: CascadeState, see: Callable[[Interaction], None] = lambda _: None
) -> dict[int, tuple[Routing, str]]:
    """Return, by its order, each routing since the state began that is still in the log, and the task's id.

    `see` is shown their lines.
    """
    begin = max(state.positions.get(INTERACTIONS, 0), read_start_offsets(logs_dir).begin(INTERACTIONS))
    found: dict[int, tuple[Routing, str]] = {}
    lines = (line.data for line in read(logs_dir, INTERACTIONS, begin, on_bad=lambda bad: None) if MARK in line.data)
    for one in decode_lines(lines, Interaction):
        if one.cascade is not None and one.agent_id == agent_id and one.cascade.order >= state.order:
            found[one.cascade.order] = one.cascade, one.task_id
            see(one)
    return found


def read_pairs(logs_dir: Path, state: CascadeState) -> dict[str, Pair]:
    """Return the fresh judgements since the state began, by the task of the big model's answer."""
    pairs: dict[str, Pair] = {}
    lines = read(logs_dir, AUDITS, state.positions.get(AUDITS, 0), on_bad=lambda bad: None)
    for verdict in decode_lines((line.data for line in lines), AuditedTask):
        if verdict.is_pair:
            pairs.setdefault(verdict.task_id, pair_of(verdict))
    return pairs


def replay_decision(
    state: CascadeState, routed: Mapping[int, tuple[Routing, str]], pairs: Mapping[str, Pair], until: int
) -> tuple[Move | None, CascadeTrial]:
    """Return the move that the evidence of this state leads to, from the tasks routed before the order `until`.

    A unit that has no judgement is left out: the big model failed to answer it.
    """
    before = {order: one for order, one in routed.items() if order < until}
    verdicts = {order: pairs.get(big_task_of(task_id)) for order, (_, task_id) in before.items()}
    trial = replay_cascade(state, "", (routing for routing, _ in before.values()), verdicts)
    return trial.observe(), trial
