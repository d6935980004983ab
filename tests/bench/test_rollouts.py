"""The books of the rollouts under kills: an answer behind its deadline is no fault, a deadline behind its answer is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.rollouts.books import books_of
from ratchet.logs.names import INTERACTIONS, active_path
from schemas import Task
from services.orchestrator.tasks.settlement import ending
from tests.acceptance.ledger import Ledger
from tests.services.orchestrator.house import answered, house, scored
from tests.waiting import until


async def test_an_answer_that_comes_after_the_deadline_stands_behind_it_and_the_other_way_round_is_a_fault(
    tmp_path: Path,
) -> None:
    # given a task whose deadline passed while no orchestrator was there, and whose Reward waited
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t-0", input="x", deadline=datetime.now(UTC) + timedelta(seconds=2)))
        (work,) = await fleet.work()
    async with house(tmp_path) as fleet:
        (result,) = await fleet.results()
        await fleet.reward(scored(answered(work, "a", "b"), 0.1, 0.2))
        await until(lambda: len(fleet.logged()) == 3)
    ledger = Ledger({"t-0"}, 1, {"t-0"}, may_expire={"t-0"})
    ledger.answers["t-0"] += 1

    # when its books are read, and once more with a second end behind its answers
    books = books_of(tmp_path, ledger, samples=2)
    with active_path(tmp_path, INTERACTIONS).open("ab") as log:
        log.write(ending(work, "expired", "no answer", datetime.now(UTC)).encode() + b"\n")
    twice = books_of(tmp_path, ledger, samples=2)

    # then the first are in order
    assert (result.status, dict(books.ended), books.rollouts.total()) == ("expired", {"expired": 1}, 2)
    assert books.complaints == []
    assert "t-0 has the samples [0, 1, None]" in twice.complaints
