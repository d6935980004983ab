"""The leaderboard of evaluations: ties share a rank, the newest counts, scorers and sets are kept apart."""

from __future__ import annotations

from datetime import UTC, datetime

from ratchet.adapters.evaluations import leaderboard
from schemas.records.evaluation import (
    Comparison,
    EvaluatedVersion,
    Evaluation,
    EvaluationSet,
    FamilyResult,
    Interval,
    PassAt,
    Solved,
    VersionResult,
)

SET = EvaluationSet(name="held-out", sha256="a" * 64, tasks=40)
NONE = Interval(mean=0.0, low=0.0, high=0.0, tasks=40)


def interval(mean: float, half: float = 0.05) -> Interval:
    return Interval(mean=mean, low=mean - half, high=mean + half, tasks=40)


def evaluation(
    hour: int, means: dict[tuple[str | None, str], float], scorer: str = "exact", **given: object
) -> Evaluation:
    """`means`: by program and version, the baseline first."""
    (_, before), *others = means.items()
    solved = (
        Solved(tasks=40, answers=40, right=20, pass_at=(PassAt(k=1, rate=interval(before)),), cost_per_solved=0.5),
    )
    fields = {"name": f"e-{hour}", "agent_id": "small", "at": datetime(2026, 11, 1, hour, tzinfo=UTC), "set": SET}
    return Evaluation.model_validate(
        fields
        | {
            "scorer": scorer,
            "versions": tuple(EvaluatedVersion(version=v, program=p, solved=solved) for p, v in means),
            "results": tuple(
                VersionResult(
                    version=v,
                    program=p,
                    results=(
                        FamilyResult(samples=4, single=comparison_of(before, mean), best=comparison_of(before, mean)),
                    ),
                )
                for (p, v), mean in others
            ),
        }
        | given
    )


def comparison_of(before: float, after: float) -> Comparison:
    return Comparison(before=interval(before), after=interval(after), difference=NONE)


def test_ties_share_a_rank_and_a_program_is_a_contestant_as_a_version_is() -> None:
    means = {(None, "v1.0.0"): 0.50, (None, "v1.0.1"): 0.52, ("tool-agent", "v1.0.0"): 0.9, ("shell", "v1.0.0"): 0.1}

    found = leaderboard([evaluation(1, means)])

    assert [(one.rank, one.is_tied, one.program, one.version) for one in found] == [
        (1, False, "tool-agent", "v1.0.0"),
        (2, True, None, "v1.0.1"),
        (2, True, None, "v1.0.0"),
        (4, False, "shell", "v1.0.0"),
    ]
    assert {one.cost_per_solved for one in found} == {0.5}
    assert found[0].score == interval(0.9)


def test_of_each_contestant_the_newest_counts_and_scorers_are_not_compared() -> None:
    first = evaluation(1, {(None, "v1.0.0"): 0.2, (None, "v1.0.1"): 0.3})
    again = evaluation(3, {(None, "v1.0.0"): 0.6})
    other = evaluation(2, {(None, "v1.0.0"): 0.9}, scorer="judge")

    found = leaderboard([again, other, first])

    assert [(one.scorer, one.rank, one.version, one.score.mean, one.evaluation) for one in found] == [
        ("exact", 1, "v1.0.0", 0.6, "e-3"),
        ("exact", 2, "v1.0.1", 0.3, "e-1"),
        ("judge", 1, "v1.0.0", 0.9, "e-2"),
    ]


def test_nothing_that_was_evaluated_is_no_row() -> None:
    assert leaderboard([]) == []
