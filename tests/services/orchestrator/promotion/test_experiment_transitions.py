"""How experiments begin, and what their verdicts become."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from ratchet.experiments.replay import plan_of
from schemas.records.decision import Conclude, Promote, RollBack, StartExperiment
from schemas.records.evidence import Change, Evidence, ExperimentPlan, ReplayedEvidence, ReplayRecord, Verdict
from schemas.records.registry import AdapterEntry, AgentAdapters, EntryState, ExperimentOutcome, FrozenBy
from services.orchestrator.promotion.experiment_transitions import (
    ExperimentPolicy,
    Where,
    canary,
    event_of,
    move_after_verdict,
    next_watch,
)
from services.orchestrator.settings import OrchestratorSettings
from tests.ratchet.adapters.making_adapters import NOON
from tests.ratchet.adapters.test_program_moves import starts
from tests.ratchet.experiments.test_promotion_rule import evidence

WHERE = Where(100, {"interactions": 7}, NOON)
POLICY = OrchestratorSettings.read().experiments


def outcome(kind: str, verdict: str, at: datetime = NOON) -> ExperimentOutcome:
    return ExperimentOutcome.model_validate(
        {"experiment_id": f"{kind}-{verdict}", "kind": kind, "verdict": verdict, "decision": 1, "at": at}
    )


UNHARMED = outcome("watch", "unharmed")


def adapters(*outcomes: ExperimentOutcome, **changed: object) -> AgentAdapters:
    """Two promotions after each other: v1.0.2 is stable, and a third version waits."""
    states = {
        "v1.0.0": EntryState.SUPERSEDED,
        "v1.0.1": EntryState.SUPERSEDED,
        "v1.0.2": EntryState.STABLE,
        "v1.0.3": EntryState.VALIDATED,
    }
    entries = {
        version: AdapterEntry(version=version, state=state, sha256="a" * 64, folder=f"small/{version}")
        for version, state in states.items()
    }
    entries["v1.0.2"] = entries["v1.0.2"].model_copy(
        update={"since_base": Change(score=0.1, length=1.2), "outcomes": outcomes}
    )
    fields: dict[str, object] = {"primary": "v1.0.2", "previous": "v1.0.1", "versions": entries}
    return AgentAdapters.model_validate(fields | changed)


def test_the_next_candidate_has_what_its_primary_left_of_the_limits_and_its_part_of_the_errors() -> None:
    running = canary("small", "v1.0.3", adapters(outcome("canary", "promoted")), POLICY, WHERE).experiment

    plan = plan_of(running)
    assert plan.limits is not None
    assert plan.limits.length == pytest.approx(1.3 / 1.2)
    assert (plan.nth, plan.promote_at, plan.roll_back_at) == (2, pytest.approx(60), 25)
    assert plan.replayed is None


def test_a_replay_beside_the_primary_is_taken_over_and_what_it_measured_replaces_the_estimates() -> None:
    proved = ReplayedEvidence(prompts=100, success=30.0, types={"sums": 100})
    measured = Change(score=0.05, length=1.25)

    def plan(against: str) -> ExperimentPlan:
        replay = ReplayRecord(against=against, evidence=proved, since_base=measured)
        agent = adapters()
        versions = dict(agent.versions)
        versions["v1.0.2"] = versions["v1.0.2"].model_copy(update={"since_base": Change(length=1.1, latency=1.6)})
        versions["v1.0.3"] = versions["v1.0.3"].model_copy(update={"replayed": replay})
        agent = agent.model_copy(update={"versions": versions})
        return plan_of(canary("small", "v1.0.3", agent, POLICY, WHERE).experiment)

    taken = plan(against="v1.0.2")
    assert taken.replayed == proved
    assert taken.limits is not None
    assert taken.limits.since_base == measured.model_copy(update={"latency": 1.6})
    assert taken.limits.length == pytest.approx(1.3 / 1.25)

    # beside another primary it says nothing
    other = plan(against="v1.0.1")
    assert other.replayed is None
    assert other.limits is not None
    assert other.limits.length == pytest.approx(1.3 / 1.1)


def test_a_promotion_carries_what_was_changed_since_the_base() -> None:
    running = canary("small", "v1.0.3", adapters(), POLICY, WHERE).experiment
    measured = evidence().model_copy(update={"change": Change(score=0.05, length=1.05)})

    move = move_after_verdict(running, Verdict.PROMOTE, POLICY, WHERE, measured)

    assert isinstance(move, Promote) and move.since_base is not None
    assert move.since_base.score == pytest.approx(0.15)
    assert move.since_base.length == pytest.approx(1.26)


def test_a_primary_is_watched_twice_beside_the_one_before_it_and_then_beside_the_base() -> None:
    found = [next_watch("small", adapters(*[UNHARMED] * turn), POLICY, WHERE) for turn in range(4)]
    turns = [move.experiment for move in found if isinstance(move, StartExperiment)]

    assert [one.control for one in turns] == ["v1.0.1", "v1.0.1", "v1.0.0", "v1.0.1"]
    assert [plan_of(one).roll_back_at for one in turns] == pytest.approx([50, 150, 300, 500])


@pytest.mark.parametrize(
    "unwatched",
    [
        adapters(frozen=FrozenBy(who="operator:ada", since=NOON, reason="a holiday")),
        AgentAdapters(),
    ],
)
def test_a_frozen_fleet_and_the_base_model_are_not_watched(unwatched: AgentAdapters) -> None:
    assert next_watch("small", unwatched, POLICY, WHERE) is None


def test_without_a_share_nothing_is_watched() -> None:
    off = ExperimentPolicy(POLICY.canary, timedelta(0), watch_share=0.0)

    assert next_watch("small", adapters(), off, WHERE) is None


HARMS = [
    ({"harm_score": 100.0}, "v1.0.0"),
    ({"harm_length": 100.0}, None),
    ({"harm_refused": 100.0}, None),
]


@pytest.mark.parametrize(("harm", "to"), HARMS)
def test_a_watch_demotes_to_the_base_only_where_that_scores_better(harm: dict[str, float], to: str | None) -> None:
    watch = next_watch("small", adapters(UNHARMED, UNHARMED), POLICY, WHERE)
    assert isinstance(watch, StartExperiment)
    proved: Evidence = evidence(harm=60.0, **harm)

    move = move_after_verdict(watch.experiment, Verdict.ROLL_BACK, POLICY, WHERE, proved)

    assert move == RollBack(version="v1.0.2", to=to)


def test_a_watch_beside_the_base_ends_with_what_it_measured() -> None:
    change = Change(score=0.2, length=1.1)
    measured = evidence().model_copy(update={"change": change})
    for outcomes, since_base in (((), None), ((UNHARMED, UNHARMED), change)):
        watch = next_watch("small", adapters(*outcomes), POLICY, WHERE)
        assert isinstance(watch, StartExperiment)

        move = move_after_verdict(watch.experiment, Verdict.STABLE, POLICY, WHERE, measured)

        assert move == Conclude(experiment_id=watch.experiment.experiment_id, verdict="unharmed", since_base=since_base)


def test_replicas_are_told_of_versions_alone() -> None:
    version = canary("small", "v1.0.3", adapters(), POLICY, WHERE)
    watch = next_watch("small", adapters(), POLICY, WHERE)
    program = starts()
    assert isinstance(watch, StartExperiment)
    ends = Conclude(experiment_id="x", verdict="aborted")

    events = [
        event_of(move, None)
        for move in (version, watch, program, Promote(version="v1.0.3"), RollBack(version="v1.0.3"))
    ]

    assert events == ["experiment_started", "experiment_started", "standing", "promoted", "rolled_back"]
    ended = [event_of(ends, one.experiment) for one in (version, watch, program)]
    assert ended == ["aborted", "standing", "standing"]
