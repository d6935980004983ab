"""An experiment replayed from the lines of the two logs is the one that ran, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from ratchet.experiments.experiment import Experiment
from ratchet.experiments.logged import ended_tasks, enrolment_of, outcome_of, unit_of
from ratchet.experiments.unit import Outcome
from schemas.messages.base import Metadata
from schemas.messages.response import Usage
from schemas.messages.reward import ScorerIdentity
from schemas.messages.work import Arm, Sampling, Work
from schemas.records.evidence import Band, ExperimentPlan, Verdict
from schemas.records.interaction import Interaction, Latencies
from tests.ratchet.experiments.making_experiments import HALF, LEVELS, Traffic, enrolment, plan, run

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


def test_calls_and_turns_are_means_of_each_arm_and_of_older_lines_there_are_none() -> None:
    experiment = Experiment(plan(ramp=HALF))
    for sequence in range(40):
        is_candidate = bool(sequence % 2)
        of = work(sequence, arm=Arm(sequence=sequence, experiment_id="small-v1.0.1", is_candidate=is_candidate))
        took = [Usage(calls=3, turns=2), Usage(calls=5, turns=5)] if is_candidate else [Usage(calls=9)] * 2
        experiment.enrol(enrolment(sequence, is_candidate=is_candidate))
        experiment.observe(sequence, outcome_of([line(of, index, 0.5, usage=one) for index, one in enumerate(took)]))

    evidence = experiment.evidence
    assert (evidence.candidate.calls, evidence.candidate.turns) == (4.0, 3.5)
    assert not {"calls", "turns"} & evidence.primary.model_dump(mode="json").keys()


def test_on_what_is_served_an_experiment_counts_the_best_of_the_group() -> None:
    one = work(0)
    outcome = outcome_of([line(one, 0, 0.2), line(one, 1, 0.6)])
    half_scored = outcome_of([line(one, 0, None), line(one, 1, 0.6)])
    unscored = outcome_of([line(one, 0, None), line(one, 1, None)])

    assert outcome.by("single") is outcome
    assert (outcome.by("served").score, outcome.by("served").usable) == (0.6, 1.0)
    assert (half_scored.usable, half_scored.by("served").usable) == (0.5, 1.0)
    assert (unscored.by("served").score, unscored.by("served").usable) == (None, 0.0)


def test_an_older_plan_is_on_single_answers_and_one_on_served_answers_decides_otherwise() -> None:
    """Single answers of the candidate are much better, and the best of each group is the same."""
    older = {name: value for name, value in plan(ramp=HALF, by_intention=True).model_dump().items() if name != "metric"}
    single = Experiment(ExperimentPlan.model_validate(older))
    served = Experiment(plan(ramp=HALF, by_intention=True, metric="served"))
    for sequence in range(400):
        of = work(sequence, arm=Arm(sequence=sequence, experiment_id="small-v1.0.1", is_candidate=bool(sequence % 2)))
        lines = [line(of, 0, 0.9), line(of, 1, 0.7 if sequence % 2 else 0.2)]
        for experiment in (single, served):
            experiment.enrol(enrolment(sequence, is_candidate=bool(sequence % 2)))
            experiment.observe(sequence, outcome_of(lines))

    assert single.final is not None
    assert single.final.verdict is Verdict.PROMOTE
    assert served.evidence.change is None or served.evidence.change.score == 0
    assert served.evidence.gain_score <= 1.0
    assert served.evidence.candidate.score == served.evidence.primary.score == pytest.approx(0.9)


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


def outcomes(interactions: Iterable[Interaction], experiment_id: str) -> Iterator[tuple[int, Outcome]]:
    """Sequence number and outcome of every task of the experiment whose lines are all there."""
    for arm, outcome in ended_tasks(line for line in interactions if line.arm.experiment_id == experiment_id):
        yield arm.sequence, outcome


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


def replay(
    plan: ExperimentPlan, works: Iterable[Work], interactions: Iterable[Interaction], *, until: float | None = None
) -> Experiment:
    """The experiment as it stood when the logs ended, or at `until` (seconds since the epoch)."""
    experiment = Experiment(plan)
    for work in works:
        if work.arm.experiment_id == plan.experiment_id:
            experiment.enrol(enrolment_of(work))
    if until is not None:
        experiment.advance(until)
    for sequence, outcome in outcomes(interactions, plan.experiment_id):
        experiment.observe(sequence, outcome)
    return experiment


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


def unscored_bad_answers(experiment: Experiment, tasks: int, share: float) -> None:
    """Answers of the candidate that are 0.05 worse, of which a share of the bad ones gets no score; groups of 8."""
    rng = random.Random(3)
    for sequence in range(tasks):
        assignment = experiment.arm_for(f"task-{sequence}", in_session=False)
        if assignment is None:
            return
        fields = {"is_candidate": assignment.is_candidate, "propensity": assignment.propensity}
        one = work(sequence, arm=work(sequence).arm.model_copy(update=fields))
        level = LEVELS[sequence % 4] - 0.05 * assignment.is_candidate
        scores = [min(1.0, max(0.0, rng.gauss(level, 0.24))) for _ in range(8)]
        missing = [assignment.is_candidate and score < level and rng.random() < share for score in scores]
        lines = [
            line(one, sample, None if lost else score, group_size=8)
            for sample, (score, lost) in enumerate(zip(scores, missing, strict=True))
        ]
        experiment.enrol(enrolment_of(one))
        experiment.observe(sequence, outcome_of(lines))


@pytest.mark.parametrize(
    ("share", "before"), [(0.2, Verdict.ROLL_BACK), (0.4, Verdict.CONTINUE), (0.8, Verdict.PROMOTE)]
)
def test_a_worse_candidate_gains_nothing_by_being_unscorable(share: float, before: Verdict) -> None:
    scored_alone = Experiment(plan(ramp=HALF))
    by_intention = Experiment(plan(ramp=HALF, by_intention=True))

    unscored_bad_answers(scored_alone, 2000, share)
    unscored_bad_answers(by_intention, 2000, share)

    assert scored_alone.decision.verdict is before
    assert by_intention.decision.verdict is Verdict.ROLL_BACK
    assert by_intention.decision.evidence.gain_bounds is not None


def test_missing_scores_at_their_worst_block_a_promotion() -> None:
    """Equally many of both arms are missing: nobody knows which, so nothing is proved while that could turn it."""
    some, many = Experiment(plan(ramp=HALF, by_intention=True)), Experiment(plan(ramp=HALF, by_intention=True))
    for experiment, missing in ((some, 0), (many, 2)):
        rng = random.Random(1)
        for sequence in range(1500):
            if (assignment := experiment.arm_for(f"task-{sequence}", in_session=False)) is None:
                break
            fields = {"is_candidate": assignment.is_candidate, "propensity": assignment.propensity}
            one = work(sequence, arm=work(sequence).arm.model_copy(update=fields))
            score = min(1.0, max(0.0, rng.gauss(LEVELS[sequence % 4] + 0.06 * assignment.is_candidate, 0.1)))
            lines = [line(one, n, None if n < missing else score, group_size=8) for n in range(8)]
            experiment.enrol(enrolment_of(one))
            experiment.observe(sequence, outcome_of(lines))

    evidence = many.decision.evidence
    assert some.decision.verdict is Verdict.PROMOTE
    assert many.decision.verdict is Verdict.CONTINUE
    assert evidence.gain_score >= 20 and evidence.gain_success >= 20
    assert evidence.gain_bounds is not None and evidence.gain_bounds < 1
    assert "missing scores at their worst" in many.decision.reason


def test_nothing_missing_gives_the_same_numbers_either_way() -> None:
    for effect in (0.0, 0.06):
        experiments = [Experiment(plan(ramp=HALF, by_intention=intention)) for intention in (False, True)]
        for experiment in experiments:
            run(experiment, Traffic(effect=effect), 400)
        left_out, counted = (experiment.decision for experiment in experiments)
        same = counted.evidence.model_copy(update={"gain_bounds": None})

        assert same == left_out.evidence
        assert (counted.verdict, counted.band) == (left_out.verdict, left_out.band)


def test_an_experiment_from_before_is_decided_as_it_was() -> None:
    """Its plan says nothing of alpha or intention; the figures are those of the version that ran it."""
    recorded = plan(ramp=HALF).model_dump(mode="json")
    del recorded["alpha"], recorded["by_intention"], recorded["rule"]

    experiment, _, _ = live(ExperimentPlan.model_validate(recorded), -0.15, 500)

    decision, evidence = experiment.decision, experiment.decision.evidence
    assert (decision.verdict, decision.sequence) == (Verdict.ROLL_BACK, 72)
    assert evidence.gain_score == 0.1862032180975557
    assert evidence.gain_success == 0.9219351824556087
    assert evidence.harm == 21.84663290614773
    assert evidence.gain_bounds is None
    assert decision.band == Band(effect=-0.1525238462428228, low=-0.25, high=-0.02)
    assert decision.reason == ("harm, most of all in score: e-value 21.85 ≥ 20 after 29 units of the candidate")
