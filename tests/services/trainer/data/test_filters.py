"""One sample, one group: what teaches and what does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from services.trainer.data.filters import (
    DataPolicy,
    LoggedGroup,
    LoggedSampleFacts,
    Reason,
    group_reason,
    is_other_base,
    sample_reason,
    taught_scores,
    with_alone,
)

POLICY = DataPolicy(agent_id="small", versions={"v1.0.2": "aa", "v1.0.0": None}, base_revision="0123456789abcdef")
SAMPLE = LoggedSampleFacts(position=0, score=0.5, truncated=False, has_tokens=True, text=1)
GROUP = LoggedGroup(
    version="v1.0.2",
    sha256="aa",
    engine="transformers small@0123456789ab",
    scorer=0,
    temperature=1.0,
    filtered=False,
    size=2,
    at=datetime(2031, 5, 1, tzinfo=UTC),
    whole=True,
)


@pytest.mark.parametrize(
    ("sample", "policy", "reason"),
    [
        (SAMPLE, POLICY, None),
        (replace(SAMPLE, score=None), POLICY, Reason.NULL_SCORE),
        (replace(SAMPLE, score=0.0), POLICY, None),
        (replace(SAMPLE, truncated=True), POLICY, Reason.TRUNCATED),
        (replace(SAMPLE, truncated=True), replace(POLICY, truncated="keep"), None),
        (replace(SAMPLE, has_tokens=False), POLICY, Reason.NO_TOKENS),
    ],
)
def test_a_sample(sample: LoggedSampleFacts, policy: DataPolicy, reason: Reason | None) -> None:
    assert sample_reason(sample, sample.given, policy) is reason


UNSCORABLE = replace(SAMPLE, score=None, unscorable=True)
OUTAGE = replace(SAMPLE, score=None)


@pytest.mark.parametrize(
    ("group", "taught"),
    [
        ((SAMPLE, UNSCORABLE), [0.5, 0.0]),
        ((SAMPLE, OUTAGE, UNSCORABLE), [0.5, None, 0.0]),
        ((UNSCORABLE, UNSCORABLE), [None, None]),
        ((OUTAGE, UNSCORABLE), [None, None]),
        ((SAMPLE, replace(UNSCORABLE, feedback=0.9)), [0.5, 0.9]),
        ((replace(OUTAGE, feedback=0.9), UNSCORABLE), [0.9, 0.0]),
    ],
)
def test_what_can_not_be_scored_beside_what_was_is_as_bad_as_can_be_and_our_failures_cost_nothing(
    group: tuple[LoggedSampleFacts, ...], taught: list[float | None]
) -> None:
    assert taught_scores(group, POLICY) == taught
    dropped = taught_scores(group, replace(POLICY, unscorable="drop"))
    assert dropped == [sample.given for sample in group]


def test_an_answer_that_was_too_long_to_score_stays_to_be_unlearned() -> None:
    assert sample_reason(replace(UNSCORABLE, truncated=True), 0.0, POLICY) is None
    assert sample_reason(replace(UNSCORABLE, truncated=True), None, POLICY) is Reason.NULL_SCORE


def test_equal_scores_teach_a_learner_that_compares_nothing() -> None:
    assert group_reason(GROUP, (0.4,), (None,), replace(POLICY, needs_spread=False, min_samples=1)) is None


@pytest.mark.parametrize(
    ("group", "scores", "reason"),
    [
        (GROUP, (0.1, 0.9), None),
        (replace(GROUP, version="v1.0.1"), (0.1, 0.9), Reason.OTHER_VERSION),
        (replace(GROUP, sha256="bb"), (0.1, 0.9), Reason.OTHER_WEIGHTS),
        (replace(GROUP, sha256=None), (0.1, 0.9), None),
        (replace(GROUP, version="v1.0.0", sha256=None), (0.1, 0.9), None),
        (replace(GROUP, engine="transformers small@ffff"), (0.1, 0.9), Reason.OTHER_BASE),
        (replace(GROUP, filtered=True), (0.1, 0.9), Reason.FILTERED_SAMPLING),
        (replace(GROUP, whole=False), (0.1, 0.9), Reason.INCOMPLETE),
        (GROUP, (0.9,), Reason.TOO_FEW_SAMPLES),
        (GROUP, (), Reason.TOO_FEW_SAMPLES),
        (GROUP, (0.4, 0.4), Reason.ZERO_SPREAD),
    ],
)
def test_a_group(group: LoggedGroup, scores: tuple[float, ...], reason: Reason | None) -> None:
    assert group_reason(group, scores, (None,) * len(scores), POLICY) is reason


BY_PROGRAM = replace(POLICY, baseline="program")


@pytest.mark.parametrize(
    ("scores", "programs", "policy", "reason"),
    [
        ((0.1, 0.9), ("aider", "aider"), BY_PROGRAM, None),
        ((0.1, 0.1, 0.9, 0.9), ("shell", "shell", "aider", "aider"), BY_PROGRAM, Reason.ZERO_SPREAD),
        ((0.1, 0.1, 0.9, 0.9), ("shell", "shell", "aider", "aider"), POLICY, None),
        ((0.1, 0.2, 0.9, 0.9), ("shell", "shell", "aider", "aider"), BY_PROGRAM, None),
    ],
)
def test_programs_that_differ_from_one_another_alone_teach_nothing(
    scores: tuple[float, ...], programs: tuple[str, ...], policy: DataPolicy, reason: Reason | None
) -> None:
    assert group_reason(GROUP, scores, programs, policy) is reason


def test_the_only_usable_sample_of_its_program_is_left_out_where_there_are_others() -> None:
    def left_out(*programs: str | None, policy: DataPolicy = BY_PROGRAM, lost: int | None = None) -> list[int]:
        samples = [replace(SAMPLE, program=program) for program in programs]
        reasons = [Reason.LOST if number == lost else None for number in range(len(samples))]
        return [n for n, reason in enumerate(with_alone(samples, reasons, policy)) if reason is Reason.ALONE]

    assert left_out("aider", "shell", "aider") == [1]
    assert left_out("aider", "shell", "aider", "shell", lost=0) == [2]
    assert left_out("aider", "shell", "aider", policy=POLICY) == []
    assert left_out("aider", "shell", policy=replace(BY_PROGRAM, needs_spread=False)) == []
    assert left_out("aider") == []  # too few samples, which is another reason


@pytest.mark.parametrize(
    ("engine", "revision", "other"),
    [
        ("transformers small@0123", "0123456789", False),
        ("transformers small@9999", "0123456789", True),
        ("vllm org/model", "0123456789", False),
        (None, "0123456789", False),
        ("transformers small@9999", None, False),
    ],
)
def test_only_an_engine_that_names_its_model_can_be_another(
    engine: str | None, revision: str | None, other: bool
) -> None:
    assert is_other_base(engine, revision) is other


def test_every_reason_has_a_sentence() -> None:
    assert all(reason.sentence.endswith(".") for reason in Reason)
