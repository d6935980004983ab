"""Who answers: the version a task names, else the arm drawn by the watch or the experiment, each on its own units."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ratchet.experiments.experiment import Experiment
from ratchet.experiments.logged import enrolment_of
from ratchet.experiments.unit import Outcome
from ratchet.logs.names import is_own, is_rescoring
from ratchet.service.errors import Reject
from schemas.messages.task import Task
from schemas.messages.work import Arm, Sampling, Work
from schemas.records.decision import RunningExperiment
from schemas.records.evidence import ExperimentPlan, Verdict
from schemas.records.registry import AdapterEntry, AgentAdapters, EntryState
from services.orchestrator.promotion.arms import Arms
from tests.ratchet.adapters.test_program_moves import TRIED, after, of_programs

SHA = "a" * 64


def arms() -> Arms:
    states = {
        "v1.0.0": EntryState.SUPERSEDED,
        "v1.0.1": EntryState.SUPERSEDED,
        "v1.0.2": EntryState.STABLE,
        "v1.0.3": EntryState.REJECTED,
    }
    versions = {
        version: AdapterEntry(version=version, state=state, sha256=SHA, folder=f"small/{version}")
        for version, state in states.items()
    }
    found = Arms("small")
    found.follow(AgentAdapters(primary="v1.0.2", previous="v1.0.1", versions=versions), None)
    return found


@pytest.mark.parametrize("version", ["v1.0.0", "v1.0.1", "v1.0.2"])
def test_the_base_model_and_what_is_in_traffic_can_be_asked_for(version: str) -> None:
    task = Task(task_id="t1", input="x", adapter_version=version)

    arms().check(task)
    arm = arms().arm_for(task, 7)

    assert (arm.adapter_version, arm.experiment_id, arm.propensity, arm.sequence) == (version, None, 1.0, 7)


@pytest.mark.parametrize(("named", "answers"), [("v1.0.0", "v1.0.0"), (None, "v1.0.2")])
def test_a_task_of_an_evaluation_is_the_fleets_own(named: str | None, answers: str) -> None:
    arm = arms().arm_for(Task(task_id="t1", input="x", adapter_version=named, evaluation="set-1"), 7)

    assert arm.adapter_version == answers
    assert is_own(arm.experiment_id) and not is_rescoring(arm.experiment_id)


def pair() -> Arms:
    """A writer, whose versions are those of `arms`, and a mender that has but the base model."""
    first, mender = arms(), Arms("critic")
    first.lead({"writer": first, "mender": mender})
    return first


@pytest.mark.parametrize(
    ("named", "played"),
    [
        ({}, ("v1.0.2", "v1.0.0")),
        ({"writer": "v1.0.1"}, ("v1.0.1", "v1.0.0")),
        ({"writer": "v1.0.0", "mender": "v1.0.0"}, ("v1.0.0", "v1.0.0")),
    ],
)
def test_an_evaluation_chooses_the_version_that_plays_each_role(named: dict[str, str], played: tuple[str, str]) -> None:
    task = Task(task_id="t1", input="x", evaluation="swap", role_versions=named)
    found = pair()
    found.check(task)

    arm = found.arm_for(task, 7)

    assert arm.roles is not None and tuple(one.adapter_version for one in arm.roles.values()) == played
    assert (arm.adapter_version, list(arm.roles), is_own(arm.experiment_id)) == (played[0], ["writer", "mender"], True)


@pytest.mark.parametrize(
    ("named", "evaluation", "said"),
    [
        ({"writer": "v1.0.1"}, None, "goes with `evaluation`"),
        ({"judge": "v1.0.1"}, "swap", "no role 'judge'"),
        ({"mender": "v1.0.1"}, "swap", "role 'mender' is not played by v1.0.1 now"),
    ],
)
def test_versions_of_roles_that_nobody_plays_are_refused(
    named: dict[str, str], evaluation: str | None, said: str
) -> None:
    with pytest.raises(Reject, match=said):
        pair().check(Task(task_id="t1", input="x", evaluation=evaluation, role_versions=named))


@pytest.mark.parametrize("given", [{"kept_apart": True}, {"profile": "mixed"}])
def test_a_task_that_is_kept_apart_is_in_no_experiment(given: dict[str, Any]) -> None:
    found = watched(canary=True)
    drawn_arms = [found.arm_for(Task(task_id=f"t{n}", input=str(n), **given), n) for n in range(200)]

    assert {(arm.adapter_version, arm.experiment_id) for arm in drawn_arms} == {("v1.0.2", None)}


@pytest.mark.parametrize("version", ["v1.0.3", "v9.9.9"])
def test_other_versions_are_refused_with_those_there_are(version: str) -> None:
    task = Task(task_id="t1", input="x", adapter_version=version)

    with pytest.raises(Reject, match=r"does not answer with v\S+ now, but with v1\.0\.0, v1\.0\.1, v1\.0\.2"):
        arms().check(task)


def test_a_research_version_answers_the_tasks_of_its_agent_alone() -> None:
    found = arms()
    entry = AdapterEntry(version="v1.0.4", state=EntryState.RESEARCH, folder="writer/v1.0.4", research_agent="lab")
    versions = found.adapters.versions | {"v1.0.4": entry}
    found.follow(found.adapters.model_copy(update={"versions": versions}), None)
    task = Task(task_id="t1", input="x", adapter_version="v1.0.4", registered_agent="lab")

    found.check(task)
    assert found.arm_for(task, 7).adapter_version == "v1.0.4"
    for other in (None, "bot"):
        with pytest.raises(Reject, match=r"does not answer with v1\.0\.4 now"):
            found.check(task.model_copy(update={"registered_agent": other}))


def trial(
    kind: str, treatment: str, control: str, share: float, **plan_fields: Any
) -> tuple[RunningExperiment, Experiment]:
    fields = {"experiment_id": kind, "kind": kind, "treatment": treatment, "control": control, "share": share}
    step = {"share": share, "candidate_units": 0, "open_candidates": 5000}
    plan = ExperimentPlan.model_validate({"experiment_id": kind, "kind": kind, "ramp": [step], **plan_fields})
    running = RunningExperiment.model_validate(fields | {"started_at": datetime(2031, 1, 1, tzinfo=UTC)})
    return running, Experiment(plan)


def watched(*, canary: bool, **plan_fields: Any) -> Arms:
    """`plan_fields`: of the canary's plan."""
    found = arms()
    watching, watch = trial("watch", "v1.0.2", "v1.0.1", 0.95)
    running, experiment = trial("canary", "v1.0.4", "v1.0.2", 0.5, **plan_fields) if canary else (None, None)
    entry = AdapterEntry(version="v1.0.4", state=EntryState.CANARY, sha256=SHA, folder="small/v1.0.4")
    changed = {"watch": watching, "experiment": running}
    if canary:
        changed |= {"candidate": "v1.0.4", "versions": {**found.adapters.versions, "v1.0.4": entry}}
    found.follow(AgentAdapters(**(dict(found.adapters) | changed)), experiment, watch)
    return found


def drawn(found: Arms, count: int = 4000) -> list[Arm]:
    return [found.arm_for(Task(task_id=f"t{number}", input="x"), number) for number in range(count)]


def test_a_watch_holds_back_its_share_of_all_traffic_and_beside_a_canary_too() -> None:
    for canary in (False, True):
        drawn_arms = drawn(watched(canary=canary))

        held_back = [arm for arm in drawn_arms if arm.adapter_version == "v1.0.1"]
        assert 0.04 < len(held_back) / len(drawn_arms) < 0.06
        assert {arm.experiment_id for arm in held_back} == {"watch"}


def test_beside_a_canary_each_unit_is_in_one_experiment_with_the_probability_that_is_logged() -> None:
    drawn_arms = drawn(watched(canary=True))

    of_watch = [arm for arm in drawn_arms if arm.experiment_id == "watch"]
    of_canary = [arm for arm in drawn_arms if arm.experiment_id == "canary"]
    assert len(of_watch) + len(of_canary) == len(drawn_arms)
    assert 0.18 < len(of_watch) / len(drawn_arms) < 0.22
    assert {round(arm.propensity, 9) for arm in of_watch} == {0.75, 0.25}
    assert {arm.propensity for arm in of_canary} == {0.5}
    tried = sum(arm.is_candidate for arm in of_canary) / len(of_canary)
    assert 0.47 < tried < 0.53


def test_an_experiment_gets_tasks_until_its_minimum_age_on_a_fleet_that_would_spend_its_budget_before() -> None:
    found = watched(canary=True, max_units=500, min_age_s=10_000.0)
    experiment, began = found.experiment, datetime(2031, 1, 1, tzinfo=UTC)
    assert experiment is not None
    for second in range(0, 11_000, 5):
        task = Task(task_id=f"t{second}", input="x")
        arm = found.arm_for(task, second)
        at = began + timedelta(seconds=second)
        found.note_admitted(work_of(task, arm).model_copy(update={"admitted_at": at}))
        if arm.experiment_id == "canary":
            score = 0.9 if arm.is_candidate else 0.4
            experiment.observe(second, Outcome(True, score, length=50.0, latency_s=1.0, scorer="verifier@1"))

    assert experiment.final is not None and experiment.final.verdict is Verdict.PROMOTE
    assert experiment.final.evidence.age_s >= 10_000


def test_a_session_that_began_under_the_watch_keeps_its_arm_when_a_canary_starts() -> None:
    before = watched(canary=False)
    sessions = [Task(task_id=f"s{number}", input="x", session_id=f"user-{number}") for number in range(200)]
    first = {}
    for number, task in enumerate(sessions):
        arm = before.arm_for(task, number)
        first[task.session_id] = arm.adapter_version
        assert before.watch is not None
        before.watch.enrol(enrolment_of(work_of(task, arm)))

    with_canary = watched(canary=True)
    with_canary.follow(with_canary.adapters, with_canary.experiment, before.watch)

    assert {task.session_id: with_canary.arm_for(task, 1000).adapter_version for task in sessions} == first


def team() -> tuple[Arms, Arms]:
    """The arms of the agent whose tasks are a team's, and those of its partner, which has another primary."""
    first, partner = arms(), Arms("critic")
    versions = {"v1.0.0": EntryState.SUPERSEDED, "v1.0.5": EntryState.STABLE}
    entries = {one: AdapterEntry(version=one, state=state, folder=one) for one, state in versions.items()}
    partner.follow(AgentAdapters(primary="v1.0.5", versions=entries), None)
    first.team = {"writer": first, "mender": partner}
    return first, partner


def test_a_teams_task_has_the_version_of_each_role_and_counts_with_both_agents_until_it_is_closed() -> None:
    first, partner = team()
    arm = first.arm_for(Task(task_id="t1", input="x"), 7)
    work = work_of(Task(task_id="t1", input="x"), arm)

    assert arm.roles is not None
    assert {role: (one.agent_id, one.adapter_version) for role, one in arm.roles.items()} == {
        "writer": ("small", "v1.0.2"),
        "mender": ("critic", "v1.0.5"),
    }
    first.note_admitted(work)
    assert (first.answering, partner.answering) == ({"v1.0.2"}, {"v1.0.5"})
    first.note_closed(work, [])
    assert (first.answering, partner.answering) == (frozenset(), frozenset())
    assert partner.arm_for(Task(task_id="t2", input="x"), 8).roles is None


def work_of(task: Task, arm: Arm) -> Work:
    at = datetime(2031, 1, 1, tzinfo=UTC)
    return Work(
        task_id=task.task_id,
        input="x",
        session_id=task.session_id,
        agent_id="small",
        deadline=at,
        admitted_at=at,
        arm=arm,
        sampling=Sampling(),
    )


def tried(*, watch: bool = False) -> Arms:
    """A program is tried against the one that answers by default."""
    found = watched(canary=False) if watch else arms()
    programs = after(*TRIED).programs
    running, experiment = trial("canary", "v1.0.2", "v1.0.2", 0.5)
    running = running.model_copy(update={"programs": of_programs().programs})
    changed = {"experiment": running, "programs": programs}
    found.follow(AgentAdapters(**(dict(found.adapters) | changed)), experiment, found.watch)
    return found


def test_a_program_is_drawn_as_a_version_is_and_both_arms_have_the_primary() -> None:
    drawn_arms = drawn(tried())

    assert {(arm.adapter_version, arm.experiment_id) for arm in drawn_arms} == {("v1.0.2", "canary")}
    assert {(arm.is_candidate, arm.program, arm.program_revision) for arm in drawn_arms} == {
        (True, "new", "a" * 64),
        (False, "old", "b" * 64),
    }
    assert 0.47 < sum(arm.is_candidate for arm in drawn_arms) / len(drawn_arms) < 0.53


def test_outside_of_the_experiment_the_default_program_answers_in_whatever_revision() -> None:
    outside = tried().arm_for(Task(task_id="t1", input="x", adapter_version="v1.0.1"), 7)
    assert (outside.program, outside.program_revision, outside.experiment_id) == ("old", None, None)
    held_back = [arm for arm in drawn(tried(watch=True)) if arm.experiment_id == "watch"]
    assert {(arm.program, arm.program_revision) for arm in held_back} == {("old", None)}


def test_who_names_programs_or_answers_himself_is_in_the_watch_alone() -> None:
    for own in ({"programs": ("new",)}, {"work_to": "reply.mine"}):
        tasks = [Task.model_validate({"task_id": f"t{number}", "input": "x", **own}) for number in range(2000)]
        found = tried(watch=True)
        drawn_arms = [found.arm_for(task, number) for number, task in enumerate(tasks)]
        assert {(arm.program, arm.program_revision, arm.experiment_id) for arm in drawn_arms} == {(None, None, "watch")}
        held_back = sum(arm.adapter_version == "v1.0.1" for arm in drawn_arms)
        assert 0.03 < held_back / len(drawn_arms) < 0.07


def test_a_session_keeps_its_program_also_for_tasks_that_no_experiment_counts() -> None:
    found = tried()
    for number in range(20):
        task = Task(task_id=f"s{number}", input="x", session_id=f"user-{number}")
        arm = found.arm_for(task, number)
        assert found.experiment is not None
        found.experiment.enrol(enrolment_of(work_of(task, arm)))
        first_passing = task.model_copy(update={"task_id": f"p{number}", "select": "first-passing"})
        uncounted = found.arm_for(first_passing, 100 + number)
        assert (uncounted.program, uncounted.program_revision, uncounted.experiment_id) == (arm.program, None, None)
        assert found.arm_for(task.model_copy(update={"task_id": f"n{number}"}), 200 + number).program == arm.program
