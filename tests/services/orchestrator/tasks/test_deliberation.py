"""A deliberation from the user to the log and back: what is admitted, chosen, told again, and counted where."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet.bus.topology import RESPONSES
from ratchet.experiments.logged import outcome_of
from ratchet.logs.best_answer import came_to_nothing, result_of
from ratchet.logs.names import TASK_INDEX
from schemas.messages.response import Sample, Usage
from schemas.messages.result import Result
from schemas.messages.reward import SampleScore
from schemas.messages.task import Task
from schemas.messages.work import Work
from services.cli.result import find_task
from services.orchestrator.tasks.admission import AdmissionPolicy, Origin, admit
from services.orchestrator.training.trigger import teaches
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import ScoringRequest
from services.scorer.worker import ScorerWorker
from tests.services.orchestrator.api.calling import SCORES, TEXTS, answering, api_of
from tests.services.orchestrator.house import House, answered, house, scored
from tests.services.orchestrator.promotion.test_arms import drawn, watched, work_of
from tests.services.scorer.scripted import Scripted

AT = datetime(2026, 3, 1, tzinfo=UTC)


def after(seconds: int) -> datetime:
    return AT + timedelta(seconds=seconds)


async def answered_with(
    fleet: House, task: Task, texts: Sequence[str], scores: Sequence[SampleScore], **changes: Sequence[Any]
) -> Result:
    await fleet.submit(task)
    work = (await fleet.work())[-1]
    assert work.select == task.select
    samples = tuple(
        Sample(text=text, **{name: values[at] for name, values in changes.items()}) for at, text in enumerate(texts)
    )
    response = answered(work, *texts).model_copy(update={"samples": samples})
    await fleet.reward(scored(response).model_copy(update={"scores": tuple(scores)}))
    (result,) = await fleet.results()
    return result


def ok(*values: float, places: Sequence[int | None] = (None,) * 8) -> list[SampleScore]:
    return [SampleScore(score=value, place=place) for value, place in zip(values, places, strict=False)]


LATE = SampleScore(score=None, status="timeout", reason="not scored by the deadline")
OFF = SampleScore(score=None, status="cancelled", reason="called off")
FINISHED, CANCELLED = "finished", "cancelled"
CASES: dict[str, tuple[str, dict[str, Any], list[str], list[SampleScore], dict[str, Any], dict[str, Any]]] = {
    "majority": ("majority", {}, ["4", "5", "4.0"], ok(0.1, 0.9, 0.2), {}, {"sample": 2, "votes": 2}),
    "judge": ("judge", {}, ["a", "b", "c"], ok(0.9, 0.9, 0.8, places=(2, 1, 3)), {}, {"sample": 1, "score": 0.9}),
    "first-passing": (
        "first-passing",
        {"pass_score": 0.5},
        ["", "later", "first"],
        [OFF, *ok(0.9, 0.5)],
        {"status": (CANCELLED, FINISHED, FINISHED), "ended_at": (None, after(9), after(5))},
        {"sample": 2, "score": 0.5, "partial": None},
    ),
    "the deadline": ("best", {}, ["a", "b", "c"], [LATE, *ok(0.25), LATE], {}, {"sample": 1, "partial": True}),
}


@pytest.mark.parametrize("what", CASES)
async def test_what_is_chosen_is_what_the_log_tells_again_whoever_reads_it(what: str, tmp_path: Path) -> None:
    select, given, texts, scores, changes, expected = CASES[what]
    task = Task(task_id="t1", input="x", samples=3, select=select, **given)
    async with house(tmp_path, judge_selects=True) as fleet, api_of(fleet) as api:
        result = await answered_with(fleet, task, texts, scores, **changes)
        lines = fleet.logged()
        shown = (await api.get("/v1/tasks/t1")).json()

    assert {name: getattr(result, name) for name in expected} == expected
    assert result.status == "ok"
    # the log alone, the command line's reader, the history, and an index that is built again say the same
    assert result_of(lines) == result
    found = find_task(tmp_path, "t1")
    assert found is not None and found.chosen.sample == result.sample
    assert [one["index"] for one in shown["samples"] if one["chosen"]] == [result.sample]
    assert (shown["select"], shown["pass_score"]) == (select, task.pass_score)
    (tmp_path / TASK_INDEX).unlink()
    async with house(tmp_path, judge_selects=True) as again:
        await again.submit(task)
        assert await again.results() == [result]
        assert again.bus.deliveries_published("work.small") == []


async def test_a_task_whose_programs_all_crashed_failed_whoever_reads_the_log(tmp_path: Path) -> None:
    crashed = {
        "status": ("failed", "limit"),
        "says": ("it exited with 127", "it was ended after 60 s"),
        "usage": (Usage(), Usage()),
        "program": ("mine", "mine"),
    }
    task = Task(task_id="t1", input="x", samples=2)
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        result = await answered_with(fleet, task, ["", "half"], ok(0.0, 0.0), **crashed)
        lines = fleet.logged()
        shown = (await api.get("/v1/tasks/t1")).json()
        (failed,) = (await api.get("/v1/tasks?state=failed")).json()["items"]

    assert (result.status, result.response, result.score, result_of(lines)) == ("failed", "", 0.0, result)
    assert [line.sample_says for line in lines] == list(crashed["says"])
    found = find_task(tmp_path, "t1")
    assert found is not None and came_to_nothing([line.row for line in found.lines]) == result.reason
    assert (shown["state"], failed["reason"], failed["samples"]) == ("failed", result.reason, 2)
    assert [(one["ended"], one["says"]) for one in shown["samples"]] == list(
        zip(crashed["status"], crashed["says"], strict=True)
    )
    assert shown["result"]["rollouts"][1]["says"] == "it was ended after 60 s"
    assert all("no tokens" in one["untaught"] for one in shown["samples"])
    (tmp_path / TASK_INDEX).unlink()
    async with house(tmp_path) as again:
        await again.submit(task)
        assert await again.results() == [result]


class Slow(Scripted):
    """Scores what says "quick", and never comes back from the rest."""

    one_by_one = True

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        if any(answer.text != "quick" for answer in request.answers):
            await asyncio.Event().wait()
        return [SampleScore(score=0.5)] * len(request.answers)


@pytest.mark.parametrize(("select", "status"), [("best", "ok"), (None, "expired")], ids=["named", "as ever"])
async def test_a_deadline_takes_the_best_so_far_where_a_choice_is_named(
    select: Any, status: str, tmp_path: Path
) -> None:
    async with house(tmp_path) as fleet:
        worker = ScorerWorker(ScorerSettings(), fleet.bus, Slow(()))
        await worker.start()
        await fleet.bus.consume(RESPONSES, worker.handle, prefetch=8)
        deadline = datetime.now(UTC) + timedelta(seconds=1.5)
        await fleet.submit(Task(task_id="t1", input="x", samples=3, select=select, deadline=deadline))
        response = answered((await fleet.work())[0], "slow", "quick", "slower")
        await fleet.send(RESPONSES, response.encode(), type="response.v1", reply_to=None)
        (result,) = await fleet.results()
        logged = fleet.logged()
        await worker.stop()

    assert result.status == status
    if select is None:
        assert (result.response, [line.sample for line in logged]) == (None, [None])
        return
    assert (result.response, result.score, result.partial) == ("quick", 0.5, True)
    assert result.reason == "only 1 of 3 answers were made and scored by the deadline"
    assert [(line.sample, line.score, line.score_status) for line in logged] == [
        (0, None, "timeout"),
        (1, 0.5, "ok"),
        (2, None, "timeout"),
    ]


async def test_what_can_t_be_chosen_by_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        for number, (task, why) in enumerate(
            (
                ({"select": "judge"}, "RATCHET_JUDGE_SELECTS"),
                ({"select": "best", "pass_score": 0.5}, "first-passing"),
                ({"pass_score": 0.5}, "first-passing"),
            )
        ):
            refused = await api.post("/v1/tasks", json={"input": "x"} | task)
            await fleet.submit(Task.model_validate({"task_id": "t1", "input": "x"} | task))
            told = (await fleet.results(number + 1))[number]

            assert (refused.status_code, why in refused.json()["detail"]) == (422, True)
            assert (told.status, why in (told.reason or "")) == ("failed", True)


async def test_deliberate_is_a_task_of_eight_answers_that_is_waited_for(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api, answering(fleet):
        body = {"input": "sort: cab"}
        first = await api.post("/v1/deliberate", json=body, headers={"Idempotency-Key": "k"})
        again = await api.post("/v1/deliberate", json=body, headers={"Idempotency-Key": "k"})
        asked = (await fleet.work())[0]
        other = await api.post("/v1/deliberate", json=body | {"samples": 3}, headers={"Idempotency-Key": "k"})
        named = {"task_id": "mine", "samples": 2, "select": "majority"}
        mine = await api.post("/v1/deliberate?wait_s=0", json=body | named)
        wrong = [
            await api.post("/v1/deliberate", json=body | bad)
            for bad in ({"samples": 65}, {"samples": None}, {"select": "most"}, {"select": None})
        ]

    assert (first.status_code, first.json()["response"], first.text == again.text) == (200, "better", True)
    assert (asked.samples, asked.sampling.n, asked.select) == (8, 8, "best")
    assert (other.status_code, mine.status_code, mine.headers["location"]) == (422, 202, "/v1/tasks/mine")
    assert {one.status_code for one in wrong} == {422}
    assert (TEXTS[1], SCORES[1]) == ("better", first.json()["score"])


def test_a_task_that_wants_the_first_that_passes_is_in_no_experiment_and_keeps_its_sessions_version() -> None:
    arms = watched(canary=True)
    count = 400
    firsts = [
        arms.arm_for(Task(task_id=f"f{number}", input="x", select="first-passing"), number) for number in range(count)
    ]
    best = [arms.arm_for(Task(task_id=f"f{number}", input="x", select="best"), number) for number in range(count)]

    assert {(arm.adapter_version, arm.experiment_id, arm.propensity) for arm in firsts} == {("v1.0.2", None, 1.0)}
    assert {arm.experiment_id for arm in best} == {arm.experiment_id for arm in drawn(watched(canary=True), count)}
    for number in range(40):
        task = Task(task_id=f"s{number}", input="x", session_id=f"user-{number}")
        begun = arms.arm_for(task, count + number)
        arms.note_admitted(work_of(task, begun))
        later = arms.arm_for(task.model_copy(update={"task_id": "n", "select": "first-passing"}), 9_000 + number)
        assert (later.adapter_version, later.experiment_id) == (begun.adapter_version, None)


async def test_it_teaches_nothing_and_what_was_served_is_what_the_user_got(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        task = Task(task_id="t1", input="x", samples=3, select="majority")
        result = await answered_with(fleet, task, ["4", "5", "4"], ok(0.1, 0.9, 0.2))
        lines = fleet.logged()
        (figure,) = fleet.orchestrator.parts.quality.figures()

    assert outcome_of(lines).served == result.score == 0.2
    assert figure.served.mean == 0.2 and round(figure.single.mean, 9) == 0.4
    sampled = [line.model_copy(update={"completion_ids": (7,), "logprobs": (-0.1,)}) for line in lines]
    assert teaches(sampled)
    censored = [line.model_copy(update={"select": "first-passing"}) for line in sampled]
    assert not teaches(censored)
    bare = outcome_of([line.model_copy(update={"select": None}) for line in lines])
    assert bare.served == 0.9


def test_fewer_samples_that_are_proved_for_the_best_are_not_given_to_another_choice() -> None:
    def sampled(select: Any) -> int:
        policy = AdmissionPolicy(("small",), WORK.sampling, timedelta(hours=1))
        task = Task(task_id="t", input="x", select=select)
        return admit(task, policy, arm=WORK.arm, now=AT, origin=Origin(), samples=3).sampling.n

    assert [sampled(select) for select in (None, "best", "majority", "first-passing")] == [3, 3, 8, 8]


WORK = Work.model_validate(
    {
        "task_id": "t",
        "input": "x",
        "agent_id": "small",
        "deadline": AT,
        "admitted_at": AT,
        "arm": {"sequence": 0},
        "sampling": {"n": 8},
    }
)
