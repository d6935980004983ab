"""Answers get a second verdict, blind; it goes into a log of its own and into the experiment, and nowhere else."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import AUDIT_SCORES, AUDITS, REWARDS
from ratchet.experiments.replay import replay_experiment
from ratchet.logs.names import AUDITS as AUDIT_LOG
from ratchet.logs.reader import read
from schemas import Response, Reward, Task, Work
from schemas.messages.reward import ScorerIdentity
from schemas.records.audit import AuditedTask
from tests.services.orchestrator.house import answered, house, scored
from tests.services.orchestrator.learning_house import LearningHouse, learning_house
from tests.waiting import settled, until

AUDITOR = ScorerIdentity(id="verifier:exact", revision="auditor")
WITH_AUDITOR: dict[str, Any] = {
    "auditor": "verifier:exact",
    "audit_share": 1.0,
    "audit_experiment_share": 1.0,
    "experiment_min_units_per_arm": 10,
    "watch_share": 0.0,
}


class AuditedHouse(LearningHouse):
    """`truth`: adapter version → the auditor's mean score of its answers."""

    def __init__(self, folder: Path, quality: dict[str, float], truth: dict[str, float], **settings: Any) -> None:
        super().__init__(folder, quality, **(WITH_AUDITOR | settings))
        self.truth = truth
        self.audited: list[Response] = []
        self._answered_by: dict[str, str] = {}
        self._noise = random.Random(11)

    async def open(self) -> None:
        await super().open()
        await self.bus.consume(AUDITS, self._audit, prefetch=16)

    async def _answer(self, delivery: Delivery) -> None:
        work = Work.decode(delivery.body)
        self._answered_by[work.task_id] = work.arm.adapter_version
        await super()._answer(delivery)

    async def _audit(self, delivery: Delivery) -> None:
        response = Response.decode(delivery.body)
        self.audited.append(response)
        mean = self.truth[self._answered_by[response.task_id]]
        scores = [min(1.0, max(0.0, mean + self._noise.uniform(-0.2, 0.2))) for _ in response.samples]
        reward = scored(response, *scores).model_copy(update={"scorer": AUDITOR})
        await self.bus.publish(AUDIT_SCORES, reward.encode(), type=Reward.TYPE, message_id="a")


audited_house = AuditedHouse


def audits(folder: Path) -> list[AuditedTask]:
    return [AuditedTask.decode(line.data) for line in read(folder, AUDIT_LOG)]


async def test_what_only_the_judge_likes_is_rolled_back_by_the_auditor(tmp_path: Path) -> None:
    judge, truth = {"v1.0.0": 0.4, "v1.0.1": 0.7}, {"v1.0.0": 0.6, "v1.0.1": 0.3}
    async with audited_house(tmp_path, judge, truth) as fleet:
        version = await fleet.trained()
        await fleet.reach(version, "canary")
        running = fleet.adapters.experiment
        await fleet.traffic(stop_when=lambda: fleet.state(version) == "rolled_back")
        decision = next(d for d, _ in fleet.store.ledger.read() if d.move.kind == "roll_back")

        assert any(seen in decision.reason for seen in ("the auditor's score", "what users are served"))
        assert running is not None
        again = replay_experiment(running, tmp_path).final
        assert again is not None
        assert again.model_dump(mode="json") == decision.evidence


async def test_the_auditor_is_told_neither_the_arm_nor_the_score_and_teaches_nothing(tmp_path: Path) -> None:
    async with audited_house(tmp_path, {"v1.0.0": 0.4}, {"v1.0.0": 0.9}) as fleet:
        await fleet.submit(Task(task_id="one", input="x", reference="y"))
        await until(lambda: bool(audits(tmp_path)))

        (asked,), (line,) = fleet.audited, audits(tmp_path)
        assert asked.work is not None
        assert asked.work.reference == "y"
        assert asked.work.arm.propensity == 1.0
        assert asked.adapter_version is None
        assert b"judge" not in asked.encode()
        assert line.auditor == AUDITOR
        assert line.judged == tuple(row.score for row in fleet.logged())
        assert line.scores != line.judged
        assert all(row.scorer != AUDITOR for row in fleet.logged())


async def test_without_an_auditor_nothing_is_audited(tmp_path: Path) -> None:
    async with house(tmp_path, audit_share=1.0) as fleet:
        await fleet.submit(Task(task_id="one", input="x"))
        (work,) = await fleet.work()
        await fleet.reward(scored(answered(work, "a", "b"), 1.0, 0.0))
        await fleet.results()
        await settled()

        assert audits(tmp_path) == []
        assert AUDITS not in fleet.bus.topology.names


async def test_an_auditor_that_is_away_is_given_up_and_what_it_says_later_is_not_logged(tmp_path: Path) -> None:
    async with house(tmp_path, auditor="verifier:exact", audit_share=1.0, audit_timeout_s=0.3) as fleet:
        await fleet.submit(Task(task_id="one", input="x"))
        (work,) = await fleet.work()
        answer = answered(work, "a", "b")
        await fleet.send(REWARDS, scored(answer, 1.0, 0.0).encode(), reply_to=None)
        await until(lambda: bool(audits(tmp_path)))
        await fleet.send(AUDIT_SCORES, scored(answer, 0.0, 1.0).encode(), reply_to=None)
        await settled()

        (line,) = audits(tmp_path)
        assert (line.scores, line.auditor) == ((), None)
        assert str(line.reason).startswith("given up")


async def test_an_experiment_asks_again_for_audits_that_a_kill_left_out(tmp_path: Path) -> None:
    """The first auditor is away; the second start asks anew for all that the experiment waits for."""
    quality = {"v1.0.0": 0.4, "v1.0.1": 0.8}
    first = LearningHouse(tmp_path, quality, **WITH_AUDITOR)
    await first.open()
    version = await first.trained()
    await first.reach(version, "canary")
    await first.traffic(stop_when=lambda: first.submitted >= 60)
    await first.close()
    assert audits(tmp_path) == []

    async with audited_house(tmp_path, quality, quality) as fleet:
        fleet._answered_by = {line.task_id: line.adapter_version for line in fleet.logged()}
        await until(lambda: len(audits(tmp_path)) >= 60)

        assert all(line.auditor == AUDITOR for line in audits(tmp_path))


QUALITY = {"v1.0.0": 0.4, "v1.0.1": 0.8}
WITHOUT_AUDITOR: dict[str, Any] = {"experiment_min_units_per_arm": 10, "probation_units": 0, "watch_share": 0.0}


async def test_in_a_canary_the_scorer_judges_the_served_answer_once_more_and_blind(tmp_path: Path) -> None:
    async with learning_house(tmp_path, QUALITY, **WITHOUT_AUDITOR) as fleet:
        version = await fleet.trained()
        await fleet.reach(version, "canary")
        before = len(fleet.asked_again)
        await fleet.traffic(stop_when=lambda: fleet.submitted >= 40)
        await until(lambda: len(audits(tmp_path)) >= 20)

        assert before == 0
        served = {line.task_id: line for line in audits(tmp_path)}
        for task_id, line in served.items():
            first = [row for row in fleet.logged() if row.task_id == task_id]
            best = max(first, key=lambda row: row.score or 0.0)
            assert (line.by, line.auditor, line.served) == ("scorer", fleet.scorer, best.sample)
            assert line.judged == tuple(row.score for row in first)
            assert [score is not None for score in line.scores] == [row is best for row in first]
        asked = fleet.asked_again[0]
        assert len(asked.samples) == 1
        assert asked.work is not None
        assert asked.adapter_version is None
        assert asked.work.arm.experiment_id is None
        assert b"judge" not in asked.encode()
        assert {row.task_id for row in fleet.logged()}.isdisjoint(asked.task_id for asked in fleet.asked_again)


async def test_a_promotion_by_second_verdicts_is_replayed_bit_for_bit(tmp_path: Path) -> None:
    async with learning_house(tmp_path, QUALITY, **WITHOUT_AUDITOR) as fleet:
        version = await fleet.trained()
        await fleet.reach(version, "canary")
        running = fleet.adapters.experiment
        await fleet.traffic(stop_when=lambda: fleet.adapters.primary == version)
        decision = next(d for d, _ in fleet.store.ledger.read() if d.move.kind == "promote")

        assert running is not None
        again = replay_experiment(running, tmp_path).final
        assert again is not None
        assert again.model_dump(mode="json") == decision.evidence
        assert again.evidence.served_units == again.evidence.units
        assert "no loss in what users are served" in decision.reason


async def test_a_second_verdict_that_never_comes_is_given_up_and_one_that_comes_later_is_dropped(
    tmp_path: Path,
) -> None:
    async with learning_house(tmp_path, QUALITY, audit_timeout_s=0.3, **WITHOUT_AUDITOR) as fleet:
        fleet.gives_second_verdicts = False
        version = await fleet.trained()
        await fleet.reach(version, "canary")
        await fleet.traffic(stop_when=lambda: bool(fleet.asked_again))
        await until(lambda: len(audits(tmp_path)) == len(fleet.asked_again))
        await fleet.reward(scored(fleet.asked_again[0], 1.0))
        await settled()

        assert all((line.scores, line.auditor) == ((), None) for line in audits(tmp_path))
        assert str(audits(tmp_path)[0].reason).startswith("given up")
        assert not fleet.bus.waiting("dead-letters")


async def test_an_experiment_asks_again_for_second_verdicts_that_a_kill_left_out(tmp_path: Path) -> None:
    first = LearningHouse(tmp_path, QUALITY, **WITHOUT_AUDITOR)
    first.gives_second_verdicts = False
    await first.open()
    version = await first.trained()
    await first.reach(version, "canary")
    await first.traffic(stop_when=lambda: len(first.asked_again) >= 20)
    await first.close()
    assert audits(tmp_path) == []

    async with learning_house(tmp_path, QUALITY, **WITHOUT_AUDITOR) as fleet:
        await until(lambda: len(audits(tmp_path)) >= len(first.asked_again))

        assert {line.task_id for line in audits(tmp_path)} <= {row.task_id for row in fleet.logged()}
        assert all(line.by == "scorer" for line in audits(tmp_path))
