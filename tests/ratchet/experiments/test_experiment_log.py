"""An experiment replayed from the lines of the two logs is the one that ran, bit for bit."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from ratchet.experiments.experiment import Experiment
from ratchet.experiments.logged import enrolment_of, outcome_of, outcomes, replay, unit_of
from schemas.messages.base import Metadata
from schemas.messages.reward import ScorerIdentity
from schemas.messages.work import Arm, Sampling, Work
from schemas.records.evidence import ExperimentPlan, Verdict
from schemas.records.interaction import Interaction, Latencies
from tests.ratchet.experiments.making_experiments import HALF, LEVELS, plan

START = datetime(2026, 1, 1, tzinfo=UTC)
SCORER = ScorerIdentity(id="verifier", revision="1", rubric_sha256="ab")


def work(sequence: int, **changed: object) -> Work:
    fields: dict[str, object] = {
        "task_id": f"task-{sequence}",
        "input": "sort: cab",
        "agent_id": "small",
        "deadline": START + timedelta(days=1),
        "arm": Arm(experiment_id="small-v1.0.1", propensity=0.5, sequence=sequence),
        "sampling": Sampling(n=2),
        "admitted_at": START + timedelta(seconds=sequence * 1.7),
        "task_type": f"type-{sequence % 4}",
    }
    return Work.model_validate(fields | changed)


def line(of: Work, sample: int | None, score: float | None, **changed: object) -> Interaction:
    fields: dict[str, object] = {
        "task_id": of.task_id,
        "input": of.input,
        "response": None if sample is None else "abc",
        "score": score,
        "agent_id": of.agent_id,
        "adapter_version": of.arm.adapter_version,
        "timestamp": of.admitted_at,
        "metadata": Metadata(),
        "status": "expired" if sample is None else "ok",
        "sample": sample,
        "group_size": 0 if sample is None else 2,
        "arm": of.arm,
        "sampling": of.sampling,
        "completion_ids": None if sample is None else tuple(range(10 + sample)),
        "scoring_agent_id": None if sample is None else "scorer",
        "scorer": None if score is None else SCORER,
        "latencies": Latencies(queue_s=0.1, generate_s=0.2, score_queue_s=0.1, score_s=0.1, total_s=0.5),
    }
    return Interaction.model_validate(fields | changed)


def test_the_outcome_of_a_task_is_the_mean_of_its_group() -> None:
    one = work(0)

    outcome = outcome_of([line(one, 0, 0.2), line(one, 1, 0.6)])

    assert outcome.succeeded
    assert (outcome.score, outcome.length, outcome.latency_s) == (0.4, 10.5, 0.5)
    assert outcome.scorer == "verifier@1@ab"


def test_a_sample_without_a_score_is_not_a_zero() -> None:
    one = work(0)

    outcome = outcome_of([line(one, 0, None), line(one, 1, 0.6)])

    assert (outcome.succeeded, outcome.score) == (True, 0.6)


def test_a_task_without_any_score_did_not_succeed() -> None:
    one = work(0)

    unscored = outcome_of([line(one, 0, None), line(one, 1, None)])
    expired = outcome_of([line(one, None, None)])

    assert (unscored.succeeded, unscored.score, unscored.length) == (False, None, 10.5)
    assert (expired.succeeded, expired.score, expired.length, expired.latency_s) == (False, None, None, None)


def test_a_draft_shaped_scorer_is_known_by_its_name() -> None:
    one = work(0)

    assert outcome_of([line(one, 0, 1.0, scorer=None)]).scorer == "scorer"


def test_a_unit_is_the_session_or_else_the_task() -> None:
    assert unit_of(work(3)) == ("task-3", False)
    assert unit_of(work(3, session_id="anna")) == ("anna", True)


def test_a_task_counts_when_all_its_lines_are_there_and_only_in_its_experiment() -> None:
    one, other = work(0), work(1, arm=Arm(sequence=1))
    lines = [line(one, 1, 1.0), line(other, 0, 1.0), line(other, 1, 1.0)]

    incomplete = list(outcomes(lines, "small-v1.0.1"))
    complete = list(outcomes([*lines, line(one, 0, 0.0)], "small-v1.0.1"))

    assert incomplete == []
    assert [(sequence, outcome.score) for sequence, outcome in complete] == [(0, 0.5)]


def live(by: ExperimentPlan, effect: float, tasks: int) -> tuple[Experiment, list[bytes], list[bytes]]:
    """A fleet with tasks and sessions, answers up to 20 tasks late, and what it wrote into its two logs."""
    rng = random.Random(5)
    experiment, waiting = Experiment(by), []
    works: list[bytes] = []
    lines: list[bytes] = []
    for sequence in range(tasks):
        session_id = f"session-{rng.randrange(40)}" if rng.random() < 0.3 else None
        one = work(sequence, session_id=session_id)
        unit_id, in_session = unit_of(one)
        if (assignment := experiment.arm_for(unit_id, in_session=in_session)) is None:
            break
        fields = {"is_candidate": assignment.is_candidate, "propensity": assignment.propensity}
        one = one.model_copy(update={"arm": one.arm.model_copy(update=fields)})
        works.append(one.encode())
        experiment.enrol(enrolment_of(one))
        waiting.append(one)
        while len(waiting) > 20:
            answer(experiment, waiting.pop(rng.randrange(len(waiting))), effect, rng, lines)
    for one in waiting:
        answer(experiment, one, effect, rng, lines)
    experiment.advance(START.timestamp() + 1e6)
    return experiment, works, lines


def answer(experiment: Experiment, one: Work, effect: float, rng: random.Random, log: list[bytes]) -> None:
    level = LEVELS[one.arm.sequence % 4] + effect * one.arm.is_candidate
    lines = [line(one, sample, min(1.0, max(0.0, rng.gauss(level, 0.2)))) for sample in (0, 1)]
    lines = [line(one, None, None)] if rng.random() < 0.03 else lines
    log += [each.encode() for each in lines]
    experiment.observe(one.arm.sequence, outcome_of(lines))


def test_a_replay_of_the_logs_comes_to_the_same_verdict_bit_for_bit() -> None:
    by = plan(ramp=HALF, session_tasks=4, session_window_s=60.0)
    experiment, works, lines = live(by, -0.15, 500)

    again = replay(by, map(Work.decode, works), map(Interaction.decode, lines))

    assert experiment.decision.verdict is Verdict.ROLL_BACK
    assert again.decision == experiment.decision
    assert again.decision.model_dump_json() == experiment.decision.model_dump_json()
    assert again.history == experiment.history


def test_a_replay_of_an_unfinished_experiment_goes_on_where_it_stood() -> None:
    by = plan(ramp=HALF, session_tasks=4, session_window_s=60.0)
    experiment, works, lines = live(by, 0.0, 60)

    again = replay(by, map(Work.decode, works), map(Interaction.decode, lines), until=START.timestamp() + 1e6)

    assert experiment.decision.verdict is Verdict.CONTINUE
    assert again.decision == experiment.decision
    assert again.arm_for("session-1", in_session=True) == experiment.arm_for("session-1", in_session=True)
