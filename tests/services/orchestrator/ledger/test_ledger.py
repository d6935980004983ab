"""What the orchestrator knows is what the two logs say, whatever happened to the index."""

from __future__ import annotations

import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ratchet.logs.best_answer import best, choose_answer, result_of
from ratchet.logs.names import INTERACTIONS, PROMISES, TASK_INDEX, task_indexes
from ratchet.logs.reader import LogReader
from ratchet.logs.rows import ScoredAnswerRow
from ratchet.logs.segments import oldest_position
from ratchet.service.errors import LeadershipLost
from schemas import Interaction, Result, Reward, Task, Work
from schemas.messages.work import Arm, Sampling
from services.cli.result import find_task
from services.orchestrator.api.chat_answer import Wanted, completion
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.ledger.logged_task import logged_lines
from services.orchestrator.tasks.admission import AdmissionPolicy, Origin, admit
from services.orchestrator.tasks.settlement import ending, settle
from tests.ratchet.logs.test_leadership import Seconds, leader, successor
from tests.services.orchestrator.house import answered, house, scored
from tests.waiting import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MEGABYTE = 1 << 20


async def open_ledger(folder: Path, *, segment_bytes: int = MEGABYTE) -> Ledger:
    ledger = Ledger(folder, segment_bytes=segment_bytes)
    await ledger.open()
    return ledger


async def admitted(ledger: Ledger, task_id: str) -> Work:
    policy = AdmissionPolicy(("small",), Sampling(n=2), timedelta(seconds=10))
    sequence = ledger.next_sequence()
    work = admit(Task(task_id=task_id, input="x"), policy, arm=Arm(sequence=sequence), now=NOW, origin=Origin("q", "c"))
    await ledger.admit(work)
    return work


def lines_of(work: Work) -> list[Interaction]:
    response = answered(work, "a", "b")
    return settle(scored(response, 0.1, 0.9), response, work, NOW)


async def test_all_is_known_again_after_a_restart(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    work = await admitted(ledger, "t1")
    await ledger.settle(lines_of(work))
    await admitted(ledger, "t2")
    before = ledger.find("t1"), ledger.find("t2")
    await ledger.close()

    again = await open_ledger(tmp_path)

    assert (again.find("t1"), again.find("t2")) == before
    assert again.next_sequence() == 2
    await again.close()


async def test_an_index_that_a_hanging_leader_holds_is_left_to_it_with_all_it_had_promised(tmp_path: Path) -> None:
    """It may have been stopped within a transaction, whose lock nobody can take from it."""
    first = leader(tmp_path, seconds := Seconds())
    hanging = Ledger(tmp_path, segment_bytes=MEGABYTE, fence=first)
    await hanging.open()
    await admitted(hanging, "t1")
    await hanging.add_waiter("t1", "second", "c")
    hanging.index.write_note("begun", b"and not committed")
    second = successor(tmp_path, seconds)

    ledger = Ledger(tmp_path, segment_bytes=MEGABYTE, fence=second)
    await ledger.open()
    await admitted(ledger, "t2")
    ledger.commit()

    assert [index.name for index in task_indexes(tmp_path)] == ["index-2.sqlite"]
    assert ledger.index.waiters("t1") == [("second", "c")]
    assert ledger.index.note("begun") is None
    with pytest.raises(LeadershipLost):
        hanging.commit()
    await ledger.close()
    second.release()
    again = Ledger(tmp_path, segment_bytes=MEGABYTE, fence=leader(tmp_path, seconds))
    await again.open()
    assert [entry.sequence for entry in map(again.find, ("t1", "t2")) if entry] == [0, 1]
    assert again.index.waiters("t1") == [("second", "c")]
    await again.close()


async def test_what_was_promised_survives_the_machine_whose_disk_had_the_index(tmp_path: Path) -> None:
    """Also once its log was shortened, and not what was kept since."""

    def of(machine: str) -> Ledger:
        return Ledger(tmp_path / "logs", index_dir=tmp_path / machine, segment_bytes=512)

    first = of("first")
    await first.open()
    for number in range(40):
        work = await admitted(first, f"t{number}")
        await first.add_waiter(work.task_id, "second", f"c{number}")
        await first.keep_response(work.task_id, b'{"kept":\n"here"}')
        if number:
            await first.settle(lines_of(work))
            await first.forget_waiters(work.task_id)
            first.index.forget_response(work.task_id)
        if number % 10 == 9:
            await first.shorten_promises()
    await first.close()
    assert oldest_position(tmp_path / "logs", PROMISES) > 0

    second = of("second")
    await second.open()

    assert second.index.waiters("t0") == [("second", "c0")]
    assert second.index.kept_response("t0") == b'{"kept":\n"here"}'
    assert {one.task_id for one in second.index.promises()} == {"t0"}
    await second.close()
    again = of("first")
    await again.open()
    assert again.index.waiters("t0") == [("second", "c0")]
    await again.close()


@pytest.mark.parametrize("then", ["goes on", "loses its index"])
async def test_what_the_index_of_the_version_before_had_promised_is_in_the_log_from_the_next_start_on(
    tmp_path: Path, then: str
) -> None:
    """It kept promises in the index alone, or in one that it had set aside when it was killed."""
    before = await open_ledger(tmp_path)
    for task_id in ("t1", "t2"):
        await admitted(before, task_id)
        await before.add_waiter(task_id, "second", "c")
    before.index.write_note("n", b"noted")
    await before.close()
    (tmp_path / "promises.jsonl").unlink()
    shutil.copy(tmp_path / TASK_INDEX, tmp_path / f"{TASK_INDEX}.broken")
    with sqlite3.connect(tmp_path / TASK_INDEX) as db:
        db.execute("DELETE FROM positions WHERE log = 'promises'")
        db.execute("DELETE FROM waiters WHERE task_id = 't2'")

    ledger = await open_ledger(tmp_path)
    await ledger.close()
    if then == "loses its index":
        (tmp_path / TASK_INDEX).unlink()
    again = await open_ledger(tmp_path)

    assert [again.index.waiters(task_id) for task_id in ("t1", "t2")] == [[("second", "c")]] * 2
    assert again.index.note("n") == (b"noted" if then == "goes on" else None)
    assert not (tmp_path / f"{TASK_INDEX}.broken").exists()
    await again.close()


@pytest.mark.parametrize("damage", ["deleted", "garbage", "truncated"])
async def test_a_lost_or_broken_index_is_built_again_from_the_logs(tmp_path: Path, damage: str) -> None:
    ledger = await open_ledger(tmp_path, segment_bytes=8192)
    for number in range(60):
        work = await admitted(ledger, f"t{number}")
        if number % 2:
            await ledger.settle(lines_of(work))
    before = [ledger.find(f"t{number}") for number in range(60)]
    await ledger.close()
    index = tmp_path / "index.sqlite"
    content = index.read_bytes()
    index.unlink()
    if damage != "deleted":
        index.write_bytes(b"not a database" * 1000 if damage == "garbage" else content[: len(content) // 3])

    again = await open_ledger(tmp_path)

    assert [again.find(f"t{number}") for number in range(60)] == before
    await again.close()


def of_equals(work: Work) -> Reward:
    """Two answers with the same score, the first of them cut at the token limit."""
    response = answered(work, "a", "b")
    cut, whole = response.samples
    samples = (cut.model_copy(update={"finish_reason": "length"}), whole)
    return scored(response.model_copy(update={"samples": samples}), 0.5, 0.5)


def chosen_by_each_reader(folder: Path, ledger: Ledger, task_id: str) -> dict[str, int | None]:
    known, shown = ledger.find(task_id), find_task(folder, task_id)
    assert known and known.result and shown
    rows = [record.value for record in LogReader(folder, INTERACTIONS).records(ScoredAnswerRow)]
    chat = completion(logged_lines(folder, known), Wanted()).ratchet
    return {
        "an index built again": Result.decode(known.result).sample,
        "ratchet result": shown.chosen.sample,
        "a chat that is asked again": chat.samples[0],
        "ratchet report": choose_answer([row for row in rows if row.task_id == task_id]).sample,
        "ratchet demo": best(line.row for line in shown.lines).sample,
    }


async def test_whoever_reads_the_log_names_the_answer_that_was_sent(tmp_path: Path) -> None:
    """Version 0.1.0, whose lines have no epoch, sent the first of equal answers, cut or not."""
    before = await open_ledger(tmp_path)
    reward = of_equals(work := await admitted(before, "of 0.1.0"))
    assert reward.scored
    await before.settle(settle(reward, reward.scored, work, NOW))
    await before.close()
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="of a leader", input="x"))
        await fleet.reward(of_equals(*await fleet.work()))
        assert [result.sample for result in await fleet.results()] == [1]
    (tmp_path / TASK_INDEX).unlink()

    again = await open_ledger(tmp_path)

    for task_id, sent in (("of 0.1.0", 0), ("of a leader", 1)):
        named = chosen_by_each_reader(tmp_path, again, task_id)
        assert named == dict.fromkeys(named, sent), task_id
    await again.close()


async def test_logs_that_were_deleted_under_the_index_are_noticed(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    await admitted(ledger, "t1")
    await ledger.close()
    (tmp_path / "assignments.jsonl").unlink()

    again = await open_ledger(tmp_path)

    assert again.find("t1") is None
    await again.close()


async def test_what_the_index_had_not_committed_is_read_again(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    ledger.commit()
    work = await admitted(ledger, "t1")
    await ledger.settle(lines_of(work))
    stored = ledger.find("t1")
    ledger.index._db.close()  # as a kill would: nothing committed since

    again = await open_ledger(tmp_path)

    assert again.find("t1") == stored
    await again.close()


async def test_of_a_group_torn_by_a_kill_only_the_missing_samples_are_logged(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    work = await admitted(ledger, "t1")
    lines = lines_of(work)
    await ledger.close()
    (tmp_path / "agent_interactions.jsonl").write_bytes(lines[0].encode() + b"\n" + lines[1].encode()[:40])

    for _ in range(2):
        ledger = await open_ledger(tmp_path)
        known = ledger.find("t1")
        assert known is not None
        assert (known.logged, known.result) == (1, None)
        await ledger.close()
    ledger = await open_ledger(tmp_path)
    await ledger.settle(lines, logged=1)
    await ledger.close()

    again = await open_ledger(tmp_path)
    known = again.find("t1")
    assert known is not None
    assert (known.logged, known.result) == (2, result_of(lines).encode())
    text = (tmp_path / "agent_interactions.jsonl").read_text()
    assert [Interaction.decode(line).sample for line in text.splitlines()] == [0, 1]
    await again.close()


async def test_a_task_that_ended_without_an_answer_is_told_again_until_it_is_known_to_be_told(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    work = await admitted(ledger, "t1")
    await ledger.settle([ending(work, "expired", "too late", NOW)])
    await ledger.close()

    again = Ledger(tmp_path, segment_bytes=MEGABYTE)
    await again.open()
    known = again.find("t1")

    assert again.unanswered == ["t1"]
    assert known is not None
    assert known.work is not None
    assert Result.decode(known.result or b"").status == "expired"
    again.mark_result_sent("t1")
    await again.close()
    third = Ledger(tmp_path, segment_bytes=MEGABYTE)
    await third.open()
    assert third.unanswered == []
    await third.close()


@pytest.mark.parametrize("lost", ["nothing", "the index"])
async def test_a_task_whose_reward_was_kept_is_told_again_until_it_is_known_to_be_told(
    tmp_path: Path, lost: str
) -> None:
    ledger = await open_ledger(tmp_path)
    for task_id in ("t1", "t2"):
        work = await admitted(ledger, task_id)
        response = answered(work, "a", "b")
        kept = scored(response, 0.1, 0.9) if task_id == "t1" else response  # whose Reward comes again
        await ledger.keep_response(task_id, kept.encode())
        await ledger.settle(lines_of(work))
    await ledger.close()
    if lost == "the index":
        (tmp_path / TASK_INDEX).unlink()

    again = Ledger(tmp_path, segment_bytes=MEGABYTE)
    await again.open()
    known, other = again.find("t1"), again.find("t2")
    assert again.unanswered == ["t1"]
    assert known is not None and known.work is not None, "it says whom to tell"
    assert other is not None and other.work is None
    again.mark_result_sent("t1")
    await again.close()

    third = Ledger(tmp_path, segment_bytes=MEGABYTE)
    await third.open()
    assert third.unanswered == []
    assert list(third.index.promises()) == []
    await third.close()


async def test_bad_lines_are_quarantined_and_passed_over(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    await admitted(ledger, "t1")
    await ledger.close()
    (tmp_path / "index.sqlite").unlink()
    with (tmp_path / "assignments.jsonl").open("ab") as file:
        file.write(b'{"not": "a work"}\n\xff\xfe\n')

    again = await open_ledger(tmp_path)

    assert again.find("t1") is not None
    quarantine = (tmp_path / "quarantine.jsonl").read_text().splitlines()
    assert len(quarantine) == 2
    assert "task_id: Field required" in quarantine[0] + quarantine[1]
    await again.close()


async def test_an_index_that_can_not_be_written_is_caught_up_from_the_logs(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    await admitted(ledger, "t1")
    ledger.index._db.execute("ROLLBACK")
    ledger.index._db.execute("PRAGMA query_only = 1")

    work = await admitted(ledger, "t2")
    ledger.commit()

    assert ledger.find("t1") is not None
    known = ledger.find("t2")
    assert known is not None
    assert known.work == work.encode()
    await ledger.close()


async def test_an_index_whose_disk_is_full_loses_nothing(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    first = await admitted(ledger, "t0")
    ledger.commit()
    ledger.index._db.execute("PRAGMA max_page_count = 1")  # as many pages as it has: no further one can be had
    works = [await admitted(ledger, f"t{number}") for number in range(1, 40)]
    await ledger.settle(lines_of(first))

    ledger.commit()

    known = [ledger.find(work.task_id) for work in works]
    assert [entry.work for entry in known if entry] == [work.encode() for work in works]
    assert (entry := ledger.find("t0")) is not None
    assert entry.result is not None
    ledger.commit()
    await ledger.close()


async def test_expired_while_the_orchestrator_was_away_is_told_by_the_next_one(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x", deadline=datetime.now(UTC) + timedelta(seconds=2)))
        await fleet.work()

    async with house(tmp_path) as fleet:
        (result,) = await fleet.results()

        assert result.status == "expired"
        await until(lambda: len(fleet.bus.deliveries_published("results")) == 1)
