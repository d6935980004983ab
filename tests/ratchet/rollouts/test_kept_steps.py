"""The steps of a rollout: kept, answered from, and given up where the program asks something else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.rollouts.kept_steps import Anew, Diverged, KeptSteps, NotKept, Sampled, ToolCalled, key_of

Open = Callable[[], KeptSteps]


def sampled(key: str, *ids: int) -> Sampled:
    return Sampled(key, list(ids), [-0.5] * len(ids), 0.1)


@pytest.fixture
def open_steps(tmp_path: Path) -> Open:
    return lambda: KeptSteps(tmp_path / "0.steps.jsonl", "1 t/0", held_s=0.02)


async def test_what_was_kept_answers_in_any_order_once_and_then_nothing_does(open_steps: Open) -> None:
    before = open_steps()
    for step in (sampled("a", 1), sampled("b", 2), sampled("a", 3)):
        assert await before.take(Sampled, step.key) is None
        before.add(step)

    again = open_steps()
    found = [await again.take(Sampled, key) for key in ("b", "a", "a")]

    assert [one and one.ids for one in found] == [[2], [1], [3]]
    assert await again.take(Sampled, "a") is None


async def test_what_was_not_asked_before_diverges_while_steps_are_left(open_steps: Open) -> None:
    open_steps().add(sampled("a", 1))
    again = open_steps()

    with pytest.raises(Diverged, match="diverged"):
        await again.take(Sampled, "b")
    assert again.diverged is not None
    again.begin_anew(again.diverged)
    assert await again.take(Sampled, "b") is None
    assert (open_steps().times_anew, open_steps().replays) == (1, False)


async def test_a_call_beside_others_waits_until_they_have_used_the_steps_up(tmp_path: Path) -> None:
    KeptSteps(tmp_path / "s", "n").add(sampled("a", 1))
    again = KeptSteps(tmp_path / "s", "n", held_s=60)
    new = asyncio.create_task(again.take(Sampled, "b"))
    await asyncio.sleep(0)

    assert (await again.take(Sampled, "a")) is not None
    assert await new is None


async def test_a_tool_and_the_model_are_not_taken_for_each_other(open_steps: Open) -> None:
    open_steps().add(ToolCalled("a", {"ok": True}, {"x": None}))
    again = open_steps()

    with pytest.raises(Diverged):
        await again.take(Sampled, "a")


async def test_a_question_has_one_id_and_waits_for_its_answer(open_steps: Open) -> None:
    first = open_steps()
    assert await first.ask("So?", ("yes",)) is None
    assert first.waits is not None
    approval_id = first.waits.approval_id

    second = open_steps()
    assert second.open_question == first.waits
    assert await second.ask("So?", ("yes",)) is None
    assert second.waits == first.waits

    second.answer(approval_id, "reject", "no")
    second.answer(approval_id, "approve", "")
    second.answer("another", "approve", "")
    third = open_steps()
    answer = await third.ask("So?", ("yes",))
    assert (answer and (answer.decision, answer.text), third.waits, third.open_question) == (
        ("reject", "no"),
        None,
        None,
    )
    assert await third.ask("So?", ("yes",)) is None
    assert third.waits is not None and third.waits.approval_id != approval_id


async def test_a_question_that_waits_holds_no_call_back(open_steps: Open) -> None:
    await open_steps().ask("So?")

    assert await open_steps().take(Sampled, "new") is None


async def test_after_a_new_beginning_a_question_is_another(open_steps: Open) -> None:
    steps = open_steps()
    await steps.ask("So?")
    first = steps.waits
    steps.begin_anew("why")
    await steps.ask("So?")

    assert first is not None and steps.waits is not None
    assert steps.waits.approval_id != first.approval_id


@pytest.mark.parametrize("tail", [b'{"step":"sampled","key":"b"', b"no json\n", b'{"step":"other"}\n'])
async def test_a_torn_end_is_cut_off(tail: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s"
    KeptSteps(path, "n").add(sampled("a", 1))
    whole = path.read_bytes()
    path.write_bytes(whole + tail)

    again = KeptSteps(path, "n")

    assert path.read_bytes() == whole
    assert await again.take(Sampled, "a") is not None


async def test_what_can_be_kept_no_more_is_forgotten_and_nobody_can_be_asked(open_steps: Open) -> None:
    steps = open_steps()
    steps.add(sampled("a", 1))
    steps.stop_keeping("the disk takes no more")
    steps.add(sampled("b", 2))

    with pytest.raises(NotKept, match="the disk takes no more"):
        await steps.ask("So?")
    assert not open_steps().replays


async def test_a_new_beginning_is_counted_over_restarts(open_steps: Open) -> None:
    steps = open_steps()
    for why in ("one", "two"):
        steps.begin_anew(why)
    steps.add(Anew("three", 3))

    assert open_steps().times_anew == 3


def test_keys_tell_requests_apart() -> None:
    asked = [(None, (1, 2), (), None), ("writer", (1, 2), (), None), (None, (1,), (2,), None), (None, (1, 2), ("x",))]

    assert len({key_of(*one) for one in asked}) == len(asked)


async def test_a_call_that_was_cut_off_has_the_same_name_in_the_next_run_and_no_other_call_has_it(
    open_steps: Open,
) -> None:
    before = open_steps()
    first, (place, second), third = (before.begin_call("a") for _ in range(3))
    before.add(Sampled("a", [2], [-0.5], 0.1, place))
    before.give_up_call("a", third[0])

    again = open_steps()
    assert (await again.take(Sampled, "a")) is not None
    assert [again.begin_call("a"), again.begin_call("a")] == [first, third]
    assert len({first[1], second, third[1], again.begin_call("b")[1]}) == 4

    again.begin_anew("it diverged")
    assert again.begin_call("a")[0] == 0
    assert again.begin_call("a")[1] not in {first[1], second, third[1]}
