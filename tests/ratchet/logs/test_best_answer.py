"""Which answer the user gets, for each way to choose: properties over any group, and what is told with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.logs.best_answer import best, chosen, ranked, result_of, votes
from ratchet.logs.same_answer import meaning
from schemas.messages.base import Metadata
from schemas.messages.work import Arm, Sampling
from schemas.messages.workspace import Artifact
from schemas.records.interaction import Interaction, Latencies

START = datetime(2026, 3, 1, tzinfo=UTC)
SELECTS = [None, "best", "majority", "judge", "first-passing"]


@dataclass(frozen=True)
class Row:
    """A view of a line."""

    sample: int = 0
    response: str | None = "a"
    score: float | None = None
    sample_status: str | None = None
    ended_at: datetime | None = None
    place: int | None = None
    artifact: Artifact | None = None
    select: str | None = None
    pass_score: float | None = None


def after(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


@st.composite
def groups(draw: st.DrawFn, select: str | None) -> list[Row]:
    pass_score = draw(st.sampled_from([None, 0.5, 0.75]))
    lines = [
        Row(
            sample=0,
            response=draw(st.sampled_from(["a", " a", "b", '{"x": 1}', '{"x":1.0}', ""])),
            score=draw(st.sampled_from([None, 0.0, 0.25, 0.5, 0.75, 1.0])),
            sample_status=draw(st.sampled_from([None, "finished", "limit", "lost", "cancelled"])),
            ended_at=draw(st.none() | st.integers(0, 5).map(after)),
            place=draw(st.none() | st.integers(1, 4)),
        )
        for _ in range(draw(st.integers(1, 8)))
    ]
    placed = [Row(**{**line.__dict__, "sample": at}) for at, line in enumerate(lines)]
    gone = ("lost", "cancelled")
    return [
        Row(
            **line.__dict__
            | {"select": select, "pass_score": pass_score}
            | ({"score": None, "place": None} if line.sample_status in gone else {})
        )
        for line in placed
    ]


def there(lines: list[Row]) -> list[Row]:
    return [line for line in lines if line.sample_status not in ("lost", "cancelled")]


@pytest.mark.parametrize("select", SELECTS)
@settings(max_examples=50)
@given(data=st.data())
def test_one_of_the_group_is_chosen_and_one_that_is_there_where_any_is(select: str | None, data: st.DataObject) -> None:
    lines = data.draw(groups(select))

    line = chosen(lines)

    assert line in lines
    assert select is None or line in (there(lines) or lines)
    assert ranked(lines)[0] is line
    assert sorted(map(id, ranked(lines))) == sorted(map(id, lines))


@settings(max_examples=50)
@given(groups(None), groups("best"))
def test_nothing_and_best_are_the_highest_score_and_the_first_of_equals(bare: list[Row], named: list[Row]) -> None:
    for lines, among in ((bare, bare), (named, there(named) or named)):
        line = chosen(lines)
        scores = [one.score for one in among if one.score is not None]
        assert line.score == max(scores, default=None)
        assert line is next(one for one in among if one.score == line.score)


@settings(max_examples=50)
@given(groups("majority"))
def test_majority_has_the_most_votes_then_the_better_score_then_the_lower_index(lines: list[Row]) -> None:
    line, among = chosen(lines), there(lines) or lines

    def alike(one: Row) -> list[Row]:
        return [other for other in among if meaning(other.response or "") == meaning(one.response or "")]

    def worth(one: Row) -> tuple[int, float]:
        return len(alike(one)), max((other.score for other in alike(one) if other.score is not None), default=-1.0)

    assert worth(line) == max(map(worth, among))
    assert line is best(alike(line))
    assert not there(lines) or votes(lines, line) == len(alike(line))
    rivals = [one for one in among if worth(one) == worth(line) and one not in alike(line)]
    assert all(one.sample > min(other.sample for other in alike(line)) for one in rivals)


@settings(max_examples=50)
@given(groups("judge"))
def test_the_judges_order_goes_before_scores_and_without_one_scores_choose(lines: list[Row]) -> None:
    line, among = chosen(lines), there(lines) or lines

    places = [one.place for one in among if one.place is not None]
    assert line.place == min(places, default=None)
    assert places or line is best(among)


@settings(max_examples=50)
@given(groups("first-passing"))
def test_the_first_in_time_that_passes_is_chosen_and_the_best_where_none_does(lines: list[Row]) -> None:
    line, among = chosen(lines), there(lines) or lines

    needed = 1.0 if lines[0].pass_score is None else lines[0].pass_score
    passing = [one for one in among if one.score is not None and one.score >= needed]
    if not passing:
        assert line is best(among)
    else:
        assert line in passing
        timed = [one for one in passing if one.ended_at is not None]
        assert line is (min(timed, key=lambda one: (one.ended_at, one.sample)) if timed else passing[0])


def test_of_a_task_with_a_workspace_the_patch_votes_and_not_what_is_said_of_it() -> None:
    texts, patches = ("done", "done", "I mended it", "mended"), ("+1", "+2", "+3", "+3")
    lines = [
        Row(at, text, score=0.5, artifact=Artifact(patch=patch), select="majority")
        for at, (text, patch) in enumerate(zip(texts, patches, strict=True))
    ]

    assert (chosen(lines).sample, votes(lines, lines[2])) == (2, 2)


def line(sample: int, response: str = "a", score: float | None = None, **given: Any) -> Interaction:
    spent = Latencies(queue_s=0, generate_s=0, score_queue_s=0, score_s=0, total_s=0)
    fields = {"task_id": "t", "input": "x", "agent_id": "small", "adapter_version": "v1.0.0", "timestamp": START}
    fields |= {"metadata": Metadata(), "arm": Arm(sequence=0), "sampling": Sampling(), "latencies": spent}
    return Interaction(**fields, sample=sample, group_size=3, response=response, score=score, **given)


def test_the_result_says_what_was_there_by_the_deadline() -> None:
    late = {"score_status": "timeout", "select": "best"}

    result = result_of([line(0, **late), line(1, "b", 0.25, select="best"), line(2, **late)])

    assert (result.status, result.sample, result.score, result.partial) == ("ok", 1, 0.25, True)
    assert result.reason == "only 1 of 3 answers were made and scored by the deadline"


def test_a_task_that_names_no_choice_has_the_result_that_it_always_had() -> None:
    late = {"score_status": "timeout"}

    result = result_of([line(0, **late), line(1, "b", 0.25), line(2, **late)])

    assert (result.sample, result.partial, result.reason, result.votes) == (1, None, None, None)
    assert not {b"partial", b"votes"} & set(result.encode().split(b'"'))


def test_the_result_says_the_votes_and_that_the_judge_or_the_scorer_found_none() -> None:
    answers = enumerate([("a", 0.5), ("b", 0.9), (" a", None)])
    said = [line(at, text, score, select="majority") for at, (text, score) in answers]
    assert (result_of(said).sample, result_of(said).votes) == (0, 2)

    unheard = [line(at, str(at), 0.5, select="judge") for at in range(3)]
    assert result_of(unheard).reason == "the judge put the answers into no order: this is the best-scored"
    heard = [one.model_copy(update={"place": 3 - at}) for at, one in enumerate(unheard)]
    assert (result_of(heard).sample, result_of(heard).reason) == (2, None)

    failing = [line(at, str(at), 0.5, select="first-passing") for at in range(3)]
    assert result_of(failing).reason == "no answer passed: this is the best-scored"
