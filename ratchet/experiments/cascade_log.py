"""Reads a cascade's evidence from the logs: how tasks were routed, and what a fresh judgement said of pairs. Blocks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ratchet.experiments.cascade import Move, Pair
from ratchet.experiments.cascade_trial import CascadeTrial, pair_of, replay_cascade
from ratchet.logs.cascaded import big_task_of
from ratchet.logs.names import AUDITS, INTERACTIONS
from ratchet.logs.reader import read
from ratchet.logs.segments import read_start_offsets
from schemas.messages.base import DecodeError
from schemas.records.audit import AuditedTask
from schemas.records.cascade import CascadeState, Routing
from schemas.records.interaction import Interaction

MARK = b'"cascade":'
"""A line without this was routed by no cascade."""


def read_routed(logs_dir: Path, agent_id: str, state: CascadeState) -> dict[int, tuple[Routing, str]]:
    """Return, by its order, each routing since the state began that is still in the log, and the task's id."""
    begin = max(state.positions.get(INTERACTIONS, 0), read_start_offsets(logs_dir).begin(INTERACTIONS))
    found: dict[int, tuple[Routing, str]] = {}
    for line in read(logs_dir, INTERACTIONS, begin, on_bad=lambda bad: None):
        if MARK not in line.data:
            continue
        try:
            one = Interaction.decode(line.data)
        except DecodeError:
            continue
        if one.cascade is not None and one.agent_id == agent_id and one.cascade.order >= state.order:
            found[one.cascade.order] = one.cascade, one.task_id
    return found


def read_pairs(logs_dir: Path, state: CascadeState) -> dict[str, Pair]:
    """Return the fresh judgements since the state began, by the task of the big model's answer."""
    pairs: dict[str, Pair] = {}
    for line in read(logs_dir, AUDITS, state.positions.get(AUDITS, 0), on_bad=lambda bad: None):
        try:
            verdict = AuditedTask.decode(line.data)
        except DecodeError:
            continue
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
