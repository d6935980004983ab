"""Which answer the user gets, for each way to choose: properties over any group, and what is told with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.logs.best_answer import best, choose_answer, ends_told, rank_answers, result_of, votes
from ratchet.logs.votes import meaning
from schemas.messages.base import Metadata
from schemas.messages.response import ForeignPart, Usage
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
    finish_reason: str | None = None
    sample_status: str | None = None
    ended_at: datetime | None = None
    place: int | None = None
    artifact: Artifact | None = None
    sample_says: str | None = None
    usage: Usage | None = None
    foreign: tuple[ForeignPart, ...] | None = None
    reference: str | None = None
    criteria: str | None = None
    select: str | None = None
    pass_score: float | None = None
    epoch: int | None = 1


FOREIGN = ForeignPart(role="reviewer", model="openai:big-1", calls=1, prompt_tokens=70, sampled_tokens=30)


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
            finish_reason=draw(st.sampled_from([None, "stop", "length"])),
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

    line = choose_answer(lines)

    assert line in lines
    assert select is None or line in (there(lines) or lines)
    assert rank_answers(lines)[0] is line
    assert sorted(map(id, rank_answers(lines))) == sorted(map(id, lines))


@settings(max_examples=50)
@given(groups(None), groups("best"))
def test_nothing_and_best_are_the_highest_score_and_of_equals_the_first_that_was_not_cut(
    bare: list[Row], named: list[Row]
) -> None:
    for lines, among in ((bare, bare), (named, there(named) or named)):
        line = choose_answer(lines)
        scores = [one.score for one in among if one.score is not None]
        assert line.score == max(scores, default=None)
        equals = [one for one in among if one.score == line.score]
        assert line is next((one for one in equals if one.finish_reason != "length"), equals[0])


@settings(max_examples=50)
@given(groups("majority"))
def test_majority_has_the_most_votes_then_the_better_score_then_the_lower_index(lines: list[Row]) -> None:
    voting = [one for one in there(lines) if one.sample_status != "limit" or (one.response or "").strip()]
    line, among = choose_answer(lines), voting
    if not voting:
        assert (line, votes(lines, line)) == (best(there(lines) or lines), 0)
        return

    def alike(one: Row) -> list[Row]:
        return [other for other in among if meaning(other.response or "") == meaning(one.response or "")]

    def worth(one: Row) -> tuple[int, float]:
        return len(alike(one)), max((other.score for other in alike(one) if other.score is not None), default=-1.0)

    assert worth(line) == max(map(worth, among))
    assert line is best(alike(line))
    assert votes(lines, line) == len(alike(line))
    rivals = [one for one in among if worth(one) == worth(line) and one not in alike(line)]
    assert all(one.sample > min(other.sample for other in alike(line)) for one in rivals)


@settings(max_examples=50)
@given(groups("judge"))
def test_the_judges_order_goes_before_scores_and_without_one_scores_choose(lines: list[Row]) -> None:
    line, among = choose_answer(lines), there(lines) or lines

    places = [one.place for one in among if one.place is not None]
    assert line.place == min(places, default=None)
    assert places or line is best(among)


@settings(max_examples=50)
@given(groups("first-passing"))
def test_the_first_in_time_that_passes_is_chosen_and_the_best_where_none_does(lines: list[Row]) -> None:
    line, among = choose_answer(lines), there(lines) or lines

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

    assert (choose_answer(lines).sample, votes(lines, lines[2])) == (2, 2)


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


NONE, ONE = Usage(calls=0), Usage(calls=1)
GONE = {"sample_status": "failed", "sample_says": "it exited with 127", "usage": NONE}


def test_programs_that_crashed_have_no_vote_and_those_that_answer_without_a_model_have() -> None:
    crashed = [Row(at, "", score=0.0, select="majority", **GONE) for at in range(3)]
    traced = Row(3, "Traceback", score=0.0, select="majority", **GONE)
    empty = Row(4, "", score=0.0, select="majority", sample_status="finished", usage=NONE)
    cut = Row(5, "", score=0.0, select="majority", sample_status="limit", usage=ONE)
    right = Row(6, "4", score=1.0, select="majority", sample_status="finished", usage=NONE)
    half = Row(7, "5", score=0.0, select="majority", sample_status="limit", usage=ONE)
    others = Row(8, "", score=0.0, select="majority", **GONE, foreign=(FOREIGN,))

    group = [*crashed, traced, empty, cut, right, half]
    assert (choose_answer(group).sample, votes(group, right), votes(group, half), votes(group, traced)) == (6, 1, 1, 0)
    assert votes([traced, others], others) == 0
    foreign = replace(others, response="6")
    assert votes([traced, foreign], foreign) == 1  # another provider's model was called
    assert choose_answer(crashed) is crashed[0] and votes(crashed, crashed[0]) == 0


def section(path: str, added: str, *, new: bool = False) -> str:
    kind = "new file mode 100644\nindex 0000..1111" if new else "index 2222..3333 100644"
    return f"diff --git a/{path} b/{path}\n{kind}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+{added}\n"


TESTS = {"language": "python", "restore": ["tests"], "files": {"conftest.py": ""}, "suite": {"files": {"own.py": ""}}}
MENDED = section("shop/price.py", "right")


@pytest.mark.parametrize(
    ("given", "patches", "alike"),
    [
        ({}, [MENDED + section("out.xml", "3 s", new=True), MENDED + section("notes", "x", new=True)], True),
        ({}, [MENDED, section("shop/price.py", "wrong")], False),
        ({}, [section("new.py", "1", new=True), section("new.py", "2", new=True)], False),
        ({}, [MENDED + section("tests/test_x.py", "1"), MENDED], True),
        ({}, [MENDED + section("own.py", "1"), section("conftest.py", "2") + MENDED], True),
        ({"criteria": None, "reference": None}, [MENDED, section("shop/price.py", "wrong")], False),
        ({"criteria": None, "reference": "5250"}, [section("shop.sqlite", "1", new=True), MENDED], True),
        ({"criteria": "be brief"}, [MENDED, section("shop/price.py", "wrong")], True),
        ({"criteria": "be brief", "response": None}, [MENDED, MENDED], False),
    ],
    ids=[
        "side effects beside a change",
        "two changes",
        "nothing but new files",
        "what the checks put back",
        "what the checks bring along",
        "nothing said of what is right",
        "the text is what is verified",
        "or judged",
        "and texts differ",
    ],
)
def test_of_a_task_with_a_workspace_that_votes_which_its_checks_see(
    given: dict[str, Any], patches: list[str], alike: bool
) -> None:
    said = {"criteria": json.dumps({"tests": TESTS}), "select": "majority", "score": 0.5, **given}
    texts = ("done", "done") if "response" not in said else ("done", "other")
    said.pop("response", None)
    lines = [
        Row(at, text, artifact=Artifact(patch=patch), **said)
        for at, (text, patch) in enumerate(zip(texts, patches, strict=True))
    ]

    assert votes(lines, lines[0]) == (2 if alike else 1)


@pytest.mark.parametrize("select", [None, "best", "majority", "first-passing"])
def test_where_every_rollout_crashed_before_it_called_the_model_the_task_failed_and_says_why(select: Any) -> None:
    lost = {"sample_status": "lost", "sample_says": "no turn"}
    lines = [line(0, "half", 0.0, select=select, program="mine", **GONE), line(1, "", None, select=select, **lost)]

    result = result_of(lines)

    assert (result.status, result.partial, result.votes) == ("failed", None, None)
    assert result.reason == (
        "each of its 2 rollouts ended before it called the model; sample 0 failed: it exited with 127"
    )
    assert result.rollouts is not None
    assert [(one.sample, one.status, one.program, one.says) for one in result.rollouts] == [
        (0, "failed", "mine", "it exited with 127"),
        (1, "lost", None, "no turn"),
    ]


@pytest.mark.parametrize("artifact", [None, Artifact(patch="")], ids=["no workspace", "nothing changed in it"])
def test_who_left_nothing_earned_nothing_whatever_a_scorer_gives_an_empty_text(artifact: Artifact | None) -> None:
    assert result_of([line(0, "\n", 0.0003, artifact=artifact, **GONE)]).status == "failed"
    assert result_of([line(0, "", 0.0003, artifact=Artifact(patch=MENDED), **GONE)]).status == "ok"


@pytest.mark.parametrize(
    "other",
    [
        {"sample_status": "finished"},
        {**GONE, "usage": ONE},
        {**GONE, "foreign": (FOREIGN,)},
        {**GONE, "score": 0.5},
        {**GONE, "sample_says": None},
    ],
    ids=[
        "one ended by itself",
        "one called the model",
        "one called another provider's",
        "one earned something",
        "nobody says how it ended",
    ],
)
def test_a_task_that_has_an_answer_has_it_and_says_how_its_rollouts_ended(other: dict[str, Any]) -> None:
    result = result_of([line(0, "", 0.0, **GONE), line(1, "a", **{"score": 0.0, **other})])

    assert (result.status, result.reason) == ("ok", None)
    assert result.rollouts is not None
    assert [one.says for one in result.rollouts] == ["it exited with 127", other.get("sample_says")]


def test_rollouts_that_ended_alike_are_told_in_one_sentence_and_a_result_without_any_is_as_ever() -> None:
    lines = [line(at, "", 0.0, program="mine", **GONE) for at in (0, 1)]

    assert list(ends_told(result_of(lines).rollouts or ())) == ["samples 0, 1 by mine: failed: it exited with 127"]
    finished = result_of([line(0, "a", 1.0, sample_status="finished", program="mine", usage=ONE)])
    assert finished.rollouts is None and b"rollouts" not in finished.encode()


def test_what_a_task_took_is_with_the_tokens_of_other_providers_models() -> None:
    used = Usage(calls=1, prompt_tokens=5, sampled_tokens=2)

    taken = result_of([line(0, "a", 1.0, needs_usage=True, usage=used, foreign=(FOREIGN,))]).usage

    assert taken is not None and (taken.prompt_tokens, taken.sampled_tokens) == (75, 32)
