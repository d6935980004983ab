"""A small model takes over from a big one by proof: who answers, who is asked, and what users are told."""

from __future__ import annotations

import asyncio
import errno
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ratchet.files.append_file import AppendFile
from ratchet.logs.best_answer import result_of
from ratchet.logs.groups import group_by_task
from ratchet.logs.names import AUDITS, INTERACTIONS, PROMISES, active_path
from ratchet.logs.reader import read
from ratchet.service.errors import BusError
from schemas import Task, Work
from schemas.messages.reward import ScorerIdentity
from schemas.records.audit import AuditedTask
from schemas.records.decision import MoveCascade
from services.cli.cascade import replayed_moves
from services.orchestrator.cascade.cascades import BUDGET
from services.trainer.data.feedback_scores import read_feedback
from tests.memory_bus import MemoryBus
from tests.ratchet.adapters.making_decisions import promoted_by_hand
from tests.services.orchestrator.api.calling import api_of
from tests.services.orchestrator.cascade.cascade_house import cascade_house, texts
from tests.services.orchestrator.house import answered
from tests.waiting import settled, until

ALIKE = {"small": 0.7, "big": 0.7}
WORSE = {"small": 0.4, "big": 0.7}


async def test_at_the_start_the_big_model_answers_all_and_the_small_one_beside_it_unseen(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE) as fleet:
        results = await fleet.ask(5)
        lines = fleet.logged()

    assert texts(results) == ["big"] * 5
    assert {(one.agent_id, one.status, one.sample, one.reason) for one in results} == {("big", "ok", None, None)}
    of_small = [line for line in lines if line.agent_id == "small"]
    assert len(of_small) == 10, "its group is logged, and teaches"
    of_big = [line for line in lines if line.agent_id == "big"]
    assert len(of_big) == 5, "an agent of its own, with its cost"
    assert all(line.usage is not None for line in of_big)
    assert {result_of(list(group)) for group in group_by_task(iter(of_small))} == set(results), "a function of the log"


async def test_the_share_rises_by_proof_and_the_log_alone_tells_the_decision_again(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE) as fleet:
        await fleet.traffic(most=3_000, until_step=2)
        results = await fleet.ask(40)
        decisions = fleet.decisions()

    moves = [decision.move for decision in decisions]
    assert all(isinstance(move, MoveCascade) for move in moves)
    assert [move.cause for move in moves if isinstance(move, MoveCascade)][:3] == ["begin", "raise", "raise"]
    assert {"small", "big"} == set(texts(results))

    again = list(replayed_moves(fleet.store.ledger, tmp_path))
    assert [one.cause for one in again][:2] == ["raise", "raise"]
    assert all(one.holds for one in again), [one.sentence for one in again]
    other_judgements = replayed_moves(fleet.store.ledger, with_other_judgements(tmp_path))
    assert not any(one.holds for one in other_judgements)
    assert decisions[2].draws, "the secret of the draws is told once they are over"


async def test_what_only_the_routing_score_likes_is_not_proved(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE) as fleet:
        fleet.truth = WORSE
        await fleet.traffic(most=600, until_step=1)
        judged = [AuditedTask.decode(line.data) for line in read(tmp_path, AUDITS)]
        assert fleet.step == 0
        assert all(len(response.samples) == 2 for response in fleet.asked_again), "both afresh, together"
        assert any(one.is_pair and one.scores[0] < one.scores[1] for one in judged if one.scores[0] and one.scores[1])
        assert all(
            response.work is not None and response.work.arm.experiment_id is None for response in fleet.asked_again
        )


async def test_the_share_of_a_group_that_says_the_same_may_route(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE, cascade_route_by="agreement") as fleet:
        await fleet.ask(samples=4)  # four different answers, which score 0.7 or so
        routed = [line.cascade.score for line in fleet.logged() if line.cascade]

    assert routed == [0.25]


async def test_the_share_falls_at_proof_of_harm(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE) as fleet:
        await fleet.traffic(most=3_000, until_step=2)
        fleet.truth = {"small": 0.1, "big": 0.9}
        for _ in range(40):
            await fleet.ask(40)
            await settled()
            if fleet.decisions()[-1].move.model_dump()["cause"] == "fall":
                break
        assert fleet.decisions()[-1].move.model_dump()["cause"] == "fall"
        assert fleet.step == 1


async def test_a_big_model_that_refuses_is_no_evidence_that_the_small_one_is_as_good(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE) as fleet:
        fleet.refusal = "401: invalid api key"
        await fleet.ask(120)
        units = [line.cascade for line in fleet.logged() if line.cascade and line.cascade.is_unit]
        trial = fleet.orchestrator.parts.cascades.agents["small"].trial
        await until(lambda: not trial._units)

    assert any(not unit.is_audited for unit in units)
    assert trial.cascade.evidence.units == 0


async def test_a_local_task_never_leaves_the_fleet(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE) as fleet:
        results = await fleet.ask(3, local_only=True)
        assert texts(results) == ["small"] * 3
        assert fleet.asked_of_big == []


@pytest.mark.parametrize("how", ["slow", "refusing", "over budget"])
async def test_the_small_models_answer_is_served_in_place_of_the_big_ones_and_said_to_be(
    tmp_path: Path, how: str
) -> None:
    settings: dict[str, object] = {"cascade_timeout_s": 1.0 if how == "slow" else 60.0}
    settings |= {"cascade_daily_cap": 0.001} if how == "over budget" else {}
    async with cascade_house(tmp_path, ALIKE, **settings) as fleet:
        fleet.big_is_there = how != "slow"
        fleet.refusal = "no such words here" if how == "refusing" else None
        results = await fleet.ask(2)
        why = {"slow": "no answer within", "refusing": "no such words here", "over budget": BUDGET}[how]

        assert texts(results) == ["small"] * 2
        assert {one.status for one in results} == {"ok"}
        assert all(
            why in (one.reason or "") and "the small model's best answer" in (one.reason or "") for one in results
        )
        assert len(fleet.asked_of_big) == (0 if how == "over budget" else 2)


async def test_a_task_may_wait_for_the_big_model_until_its_deadline(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE, cascade_on_failure="wait", task_deadline_s=3.0) as fleet:
        fleet.big_is_there = False
        (result,) = await fleet.ask()
        assert result.status == "expired"
        assert result.response is None
        assert "the big model has not answered" in (result.reason or "")
        assert len([line for line in fleet.logged() if line.agent_id == "small"]) == 2, "the small one's teach"


async def test_where_the_small_model_is_away_the_big_ones_answer_is_served_at_the_deadline(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE, task_deadline_s=3.0) as fleet:
        fleet.small_is_there = False
        (result,) = await fleet.ask()
        assert (result.status, result.response, result.agent_id) == ("ok", "big", "big")


async def test_the_daily_cap_counts_what_the_big_model_has_cost(tmp_path: Path) -> None:
    """A price of 1,000,000 for a million tokens is 1 a token: 3 an answer, and at most 256 are reserved for one."""
    async with cascade_house(tmp_path, ALIKE, cascade_daily_cap=520.0, max_tokens=256) as fleet:
        for _ in range(100):
            await fleet.ask()
        view = fleet.orchestrator.parts.cascades.agents["small"].view()
        assert 250 < view.spent_today <= 520, "until another one could be too much"
        assert view.in_place > 0
        assert view.big_alone == pytest.approx(view.big_cost / len(fleet.asked_of_big) * 100)


async def test_an_answer_that_the_big_model_may_give_after_its_time_out_counts_to_the_daily_cap(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE, cascade_timeout_s=1.0, cascade_daily_cap=300.0) as fleet:
        spending = fleet.orchestrator.parts.cascades.agents["small"].spending
        fleet.big_is_there = False
        await fleet.ask(max_tokens=256)
        assert 256.0 <= spending.totals.today < 257.0, "the most that it can cost: it may still come"
        (result,) = await fleet.ask(max_tokens=256)

    assert BUDGET in (result.reason or "")
    assert len(fleet.asked_of_big) == 1


class SlowToAsk(AppendFile):
    """Takes the task of the big model slowly."""

    is_asked = False

    def append(self, data: bytes) -> None:
        if b'"task_id":"cascade/' in data:
            SlowToAsk.is_asked = True
            time.sleep(1.0)  # real time: longer than the next look at what is reserved
        super().append(data)


async def test_what_is_reserved_for_a_task_itself_does_not_keep_the_big_models_answer_from_it(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE, file_type=SlowToAsk, cascade_daily_cap=300.0) as fleet:
        fleet.small_is_there, SlowToAsk.is_asked = False, False
        asking = asyncio.create_task(fleet.ask(max_tokens=256))
        await until(lambda: SlowToAsk.is_asked)
        (asked,) = fleet.bus.deliveries_published("work.small")
        await fleet.publish_response(answered(Work.decode(asked.body), "small 0", "small 1"))
        (result,) = await asking

    assert (result.agent_id, result.reason) == ("big", None)


async def test_a_kill_loses_no_task_and_answers_none_twice(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE, cascade_timeout_s=600.0) as fleet:
        fleet.big_is_there = False
        for number in range(4):
            await fleet.submit(_task(number))
        await until(lambda: all(fleet.orchestrator.parts.cascades.is_waiting(f"task-{number}") for number in range(4)))

    async with cascade_house(tmp_path, ALIKE, cascade_timeout_s=600.0) as after:
        await until(lambda: all(after.orchestrator.parts.cascades.is_waiting(f"task-{number}") for number in range(4)))
        for work in fleet.asked_of_big:
            await after.bus.publish("work.big", work.encode(), type="", message_id="again")
        results = await after.results(4)
        await after.submit(_task(0))
        again = await after.results(5)

    assert texts(results) == ["big"] * 4
    assert again[4] == next(one for one in results if one.task_id == "task-0")
    lines = after.logged()
    assert len({(line.task_id, line.sample) for line in lines}) == len(lines) == 12


class FullResults(MemoryBus):
    """Takes no Result while `is_full`."""

    is_full: ClassVar[bool]

    async def publish(self, queue: str, body: bytes, **properties: Any) -> None:
        if self.is_full and queue == "results":
            raise BusError("the queue 'results' is full")
        await super().publish(queue, body, **properties)

    async def reply(self, reply_to: str, body: bytes, **properties: Any) -> bool:
        if self.is_full:
            raise BusError("the broker is away")
        return await super().reply(reply_to, body, **properties)


async def test_users_who_were_not_told_before_a_restart_are_told_after_it(tmp_path: Path) -> None:
    FullResults.is_full = True
    async with cascade_house(tmp_path, ALIKE, cascade_timeout_s=600.0, bus=FullResults) as fleet:
        fleet.big_is_there = False
        for number in range(4):
            await fleet.submit(_task(number))
        await until(lambda: all(fleet.orchestrator.parts.cascades.is_waiting(f"task-{number}") for number in range(4)))
        fleet.big_is_there = True
        for work in list(fleet.asked_of_big):
            await fleet.bus.publish("work.big", work.encode(), type="", message_id="again")
        await until(lambda: len([line for line in fleet.logged() if line.agent_id == "small"]) == 8)
        assert not fleet.replies

    FullResults.is_full = False
    async with cascade_house(tmp_path, ALIKE, bus=FullResults) as after:
        results = await after.results(4)
        await until(lambda: after.orchestrator.parts.settler.first_pending is None)

    async with cascade_house(tmp_path, ALIKE, bus=FullResults) as third:
        await settled()
        assert not third.replies, "they know by now"

    assert {one.task_id for one in results} == {f"task-{number}" for number in range(4)}
    assert texts(results) == ["big"] * 4


class FullDisk(AppendFile):
    """Takes no answer and keeps no Reward while `is_full`."""

    is_full: ClassVar[bool]
    refused: ClassVar[int]

    def append(self, data: bytes) -> None:
        logs = {active_path(self.path.parent, name) for name in (INTERACTIONS, PROMISES)}
        if FullDisk.is_full and self.path in logs:
            FullDisk.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        super().append(data)


async def test_a_task_that_a_full_disk_brings_back_is_routed_once(tmp_path: Path) -> None:
    FullDisk.is_full, FullDisk.refused = False, 0
    async with cascade_house(tmp_path, ALIKE, file_type=FullDisk) as fleet:
        await fleet.ask(60)
        FullDisk.is_full = True
        asking = asyncio.create_task(fleet.ask(40))
        await until(lambda: FullDisk.refused > 3)
        FullDisk.is_full = False
        await asking
        trial = fleet.orchestrator.parts.cascades.agents["small"].trial
        await until(lambda: not trial._units)
        routed = [line.cascade.order for line in fleet.logged() if line.cascade]

    assert sorted(routed) == list(range(100))


async def test_audited_units_of_before_a_kill_are_judged_after_it(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE, audit_timeout_s=600.0) as fleet:
        await fleet.ask(60)
        fleet.gives_verdicts = False
        await fleet.ask(40)
        waiting = fleet.orchestrator.parts.cascades.agents["small"].trial.waiting
        assert waiting

    async with cascade_house(tmp_path, ALIKE) as after:
        trial = after.orchestrator.parts.cascades.agents["small"].trial
        await until(lambda: not trial.waiting)
        assert trial.next_order == 100
        assert trial.cascade.evidence.units >= len(waiting)


async def test_a_new_primary_or_scorer_begins_the_evidence_anew_and_keeps_the_share(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE) as fleet:
        await fleet.traffic(most=3_000, until_step=1)
        await fleet.ask(40)
        fleet.scorer = ScorerIdentity(id="verifier:exact", revision="2")
        await fleet.ask(40)
        await until(lambda: fleet.decisions()[-1].move.model_dump()["cause"] == "anew")
        last = fleet.decisions()[-1]

    assert "the scorer is verifier:exact 2 now" in last.reason
    assert isinstance(last.move, MoveCascade)
    assert (last.move.state.step, last.move.state.attempt) == (1, 2)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"scorer": ScorerIdentity(id="verifier:exact", revision="2")}, "the scorer is verifier:exact 2 now"),
        ({"engine_of_big": "openai tiny"}, "the model behind big is openai tiny now, not openai large"),
    ],
)
async def test_another_scorer_or_big_model_after_a_restart_begins_the_evidence_anew(
    changed: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    async with cascade_house(tmp_path, ALIKE) as fleet:
        await fleet.ask(40)

    async with cascade_house(tmp_path, ALIKE) as after:
        after.submitted = 40
        vars(after).update(changed)
        await after.ask(40)
        await until(lambda: after.decisions()[-1].move.model_dump()["cause"] == "anew")
        assert reason in after.decisions()[-1].reason


async def test_a_promotion_keeps_the_share_and_the_evidence_begins_anew(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE) as fleet:
        await fleet.traffic(most=3_000, until_step=1)
        promoted_by_hand(fleet.store, "v1.0.1")
        await until(lambda: fleet.decisions()[-1].move.model_dump()["cause"] == "anew")
        last = fleet.decisions()[-1]

    assert "v1.0.1 is the primary now, not v1.0.0" in last.reason
    assert isinstance(last.move, MoveCascade)
    assert (last.move.state.step, last.move.state.attempt, last.move.state.small) == (1, 2, "v1.0.1")


async def test_an_operator_sees_freezes_and_sets_the_share(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE) as fleet, api_of(fleet) as api:
        await fleet.ask(60)
        why = {"reason": "look into it"}
        frozen = (await api.post("/v1/cascades/small/freeze", json=why)).json()
        shown = (await api.get("/v1/cascades")).json()["items"]
        refused = await api.post("/v1/cascades/small/share", json={"share": 0.3, **why})
        raised = (await api.post("/v1/cascades/small/share", json={"share": 1.0, **why})).json()
        results = await fleet.ask(2)
        nobody = await api.post("/v1/cascades/big/freeze", json=why)
        agents = (await api.get("/v1/status")).json()["agents"]

    assert frozen["frozen"] and shown == [frozen]
    assert (shown[0]["answered_by_big"], shown[0]["share"], shown[0]["next_share"]) == (60, 0.0, 0.1)
    assert (refused.status_code, nobody.status_code) == (422, 404)
    assert (raised["share"], raised["attempt"]) == (1.0, 2)
    assert texts(results) == ["small"] * 2
    assert [agent["cascade"] and agent["cascade"]["big"] for agent in agents] == ["big", None]


async def test_a_chat_streams_the_answer_that_is_served(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE) as fleet, api_of(fleet) as api:
        asked = {"model": "small", "messages": [{"role": "user", "content": "x"}]}
        whole = (await api.post("/v1/chat/completions", json=asked)).json()
        streamed = (await api.post("/v1/chat/completions", json=asked | {"stream": True})).text
        local = asked | {"metadata": {"local_only": "true"}}
        kept = (await api.post("/v1/chat/completions", json=local)).json()

    assert (whole["choices"][0]["message"]["content"], whole["model"]) == ("big", "big@v1.0.0")
    assert '"content":"big"' in streamed.replace(" ", "")
    assert kept["choices"][0]["message"]["content"].startswith("small")


async def test_feedback_on_the_big_models_answer_is_its_own_and_a_correction_teaches(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, ALIKE) as fleet, api_of(fleet) as api:
        (result,) = await fleet.ask()
        given = {"task_id": result.task_id, "score": 0.2, "correction": "better"}
        answer = await api.post("/v1/feedback", json=given)
        (logged,) = fleet.orchestrator.parts.feedback.of_task(result.task_id)

    assert answer.status_code < 300, answer.text
    assert (logged.agent_id, logged.sample) == ("big", 2), "behind the group of two"
    assert read_feedback(tmp_path, "small", None).corrections == {result.task_id: "better"}
    assert read_feedback(tmp_path, "small", None).scores == {}


def with_other_judgements(folder: Path) -> Path:
    """The same logs, in which no pair was judged but others of the same length."""
    copy = folder / "copy"
    copy.mkdir()
    for log, change in ((INTERACTIONS, (b"", b"")), (AUDITS, (b'"task_id":"cascade/', b'"task_id":"CASCADE/'))):
        path = active_path(folder, log)
        (copy / path.name).write_bytes(path.read_bytes().replace(*change) if change[0] else path.read_bytes())
    return copy


def _task(number: int) -> Task:
    return Task(task_id=f"task-{number}", input="x")
