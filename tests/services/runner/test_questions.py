"""Rollouts that wait for a person, or whose runner was cut off: the program ends, and goes on by its steps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.bus.topology import APPROVALS, RESPONSES, cancellations_topic
from ratchet.programs.declared import Program
from ratchet.rollouts.answers import Answers
from schemas.messages.approval_request import ApprovalRequest
from schemas.messages.response import Response, Sample
from schemas.messages.task import TaskCancelled
from schemas.messages.work import Decision, GivenApproval, Sampling, Work
from schemas.messages.workspace import Workspace
from services.agent.engines.scripted import EchoEngine
from services.runner.kept_rollouts import FOLDER, KeptRollouts
from tests.memory_bus import MemoryBus
from tests.services.runner.conftest import House, MakeHouse, cancelled, delivery, python
from tests.services.runner.test_runner_worker import Counting
from tests.waiting import until

MakeWork = Callable[..., Work]

PERSON = """
def ask_person(question, *options):
    body = json.dumps({"question": question, "options": options}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/ask_person", body, headers)
    answer = json.load(urllib.request.urlopen(request))
    return answer["decision"] + " " + answer["text"]
"""
THREE = (
    PERSON
    + """
said = ask("plan")
for turn in range(3):
    open("did.txt", "a").write(said + "\\n")
    said = ask(f"{said}; {ask_person(f'Is {turn} right?', 'yes', 'no')}")
print(said)
"""
)
FILES = Workspace(files={"given.txt": "given\n"})


def questions_on(bus: MemoryBus) -> list[ApprovalRequest]:
    return [ApprovalRequest.decode(one.body) for one in bus.deliveries_published(APPROVALS)]


def answer_to(request: ApprovalRequest, decision: Decision = "approve", text: str = "") -> GivenApproval:
    return GivenApproval(approval_id=request.approval_id, sample=request.sample, decision=decision, text=text)


def with_answers(work: Work, *answers: GivenApproval) -> Work:
    return work.model_copy(update={"approvals": answers})


async def handled(house: House, work: Work) -> list[Sample]:
    """The samples of the Response; none where its rollouts wait."""
    await house.worker.handle(delivery(work))
    published = house.bus.deliveries_published(RESPONSES)
    return list(Response.decode(published[-1].body).samples) if published else []


async def test_a_program_that_asks_ends_and_goes_on_with_the_answer(make_house: MakeHouse, make_work: MakeWork) -> None:
    engine, work, answers = Counting(), make_work(workspace=FILES), list[GivenApproval]()
    async with make_house({"it": python(THREE)}, engine) as house:
        for turn in range(3):
            assert await handled(house, with_answers(work, *answers)) == []
            request = questions_on(house.bus)[-1]
            assert (request.question, request.options) == (f"Is {turn} right?", ("yes", "no"))
            assert house.worker.running().items == []
            assert "did.txt" in request.patch
            answers.append(answer_to(request, text=f"so {turn}"))
        (sample,) = await handled(house, with_answers(work, *answers))

    said = "plan; approve so 0; approve so 1; approve so 2"
    assert (sample.text, sample.status, engine.asked) == (said, "finished", 4)
    assert sample.usage is not None and sample.usage.calls == 4
    assert sample.artifact is not None
    assert [line[1:] for line in sample.artifact.patch.splitlines() if line.startswith("+p")] == [
        "plan",
        "plan; approve so 0",
        "plan; approve so 0; approve so 1",
    ]
    assert len({one.approval_id for one in questions_on(house.bus)}) == 3


@pytest.mark.parametrize("told", ["before it waits", "while it waits"])
async def test_nothing_is_kept_of_a_rollout_that_waits_for_a_task_that_has_ended(
    told: str, make_house: MakeHouse, make_work: MakeWork
) -> None:
    work, message = make_work(), TaskCancelled(task_id="t-1", agent_id="small").encode()

    def kept(house: House) -> list[str]:
        folders = os.walk(house.worker._settings.runner_dir)  # unlike rglob, it bears a folder that goes meanwhile
        return [name for _, inner, files in folders for name in (*inner, *files) if name.startswith("0.")]

    async with make_house({"it": python(THREE)}) as house:
        if told == "while it waits":
            await handled(house, work)
            assert len(kept(house)) == 2
        await house.bus.broadcast(cancellations_topic("small"), message, type=TaskCancelled.TYPE, message_id="t-1")
        if told == "before it waits":
            await handled(house, work)
        await until(lambda: kept(house) == [])


async def test_a_question_that_comes_again_is_the_same_and_nothing_runs(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    engine, work = Counting(), make_work()
    async with make_house({"it": python(THREE)}, engine) as house:
        await handled(house, work)
        await handled(house, work)

    first, again = questions_on(house.bus)
    assert (first.approval_id, engine.asked) == (again.approval_id, 1)


async def test_each_rollout_of_a_group_waits_by_itself(make_house: MakeHouse, make_work: MakeWork) -> None:
    code = PERSON + "print(ask('done') if os.environ['RATCHET_SAMPLE'] == '0' else ask_person('Which?'))"
    engine, work = Counting(), make_work(sampling=Sampling(n=3, max_tokens=200))
    async with make_house({"it": python(code)}, engine) as house:
        await handled(house, work)
        one, two = sorted(questions_on(house.bus), key=lambda request: request.sample)
        assert await handled(house, with_answers(work, answer_to(two, "reject", "no"))) == []
        samples = await handled(house, with_answers(work, answer_to(two, "reject", "no"), answer_to(one, "edit", "so")))

    assert [(sample.text, sample.status) for sample in samples] == [
        ("done", "finished"),
        ("edit so", "finished"),
        ("reject no", "finished"),
    ]
    assert engine.asked == 1


async def test_where_nobody_answers_it_ends_as_it_stands(make_house: MakeHouse, make_work: MakeWork) -> None:
    work = make_work(workspace=FILES)
    async with make_house({"it": python("print('so far', flush=True)" + THREE)}) as house:
        await handled(house, work)
        (sample,) = await handled(house, with_answers(work, answer_to(questions_on(house.bus)[0], "expired")))

    assert (sample.text, sample.status) == ("so far", "limit")
    assert sample.says == "nobody answered in time: Is 0 right?"
    assert sample.artifact is not None and "did.txt" in sample.artifact.patch


RANDOM = PERSON + "ask(os.urandom(4).hex()); print(ask_person('Go on?'))"


async def test_a_program_that_diverges_begins_anew_once_and_is_then_lost(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    work = make_work()
    async with make_house({"it": python(RANDOM)}) as house:
        await handled(house, work)
        await handled(house, with_answers(work, answer_to(questions_on(house.bus)[0])))
        first, second = questions_on(house.bus)
        assert first.approval_id != second.approval_id
        (sample,) = await handled(house, with_answers(work, answer_to(first), answer_to(second)))

    assert sample.status == "lost"
    assert "diverged" in (sample.says or "") and "second time" in (sample.says or "")


@pytest.mark.parametrize(
    ("decision", "expected"),
    [("approve", ("done", "finished", None)), ("reject", ("done", "failed", "a person rejected it"))],
)
async def test_a_result_may_need_a_persons_approval(
    decision: Any, expected: Any, make_house: MakeHouse, make_work: MakeWork
) -> None:
    engine, work = Counting(), make_work()
    async with make_house({"it": python("print(ask('done'))", approval="before-finish")}, engine) as house:
        assert await handled(house, work) == []
        (request,) = questions_on(house.bus)
        assert (request.ends, request.answer) == (True, "done")
        (sample,) = await handled(house, with_answers(work, answer_to(request, decision)))

    assert (sample.text, sample.status, sample.says) == expected
    assert engine.asked == 1


class CutOff(KeptRollouts):
    """That of a runner which is killed when a question is on disk, and how its rollout stands is not."""

    def put_standing(self, key: str, number: int, sample: Sample) -> None:
        raise InterruptedError("killed")


async def test_a_person_sees_the_result_that_is_asked_for_though_the_runner_was_killed_before_it_was_kept(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    engine, work = Counting(), make_work(input="sum", workspace=FILES)
    code = "said = ask(sys.stdin.read()); open('did.txt', 'a').write(f'{len(said)}\\n'); print(said)"
    async with make_house({"it": python(code, approval="before-finish")}, engine) as house:
        groups = house.worker._groups
        whole, cut_off = groups.kept, CutOff(house.worker._settings.runner_dir, 10**9)

        async def killed_and_again(given: Work) -> ApprovalRequest:
            groups.kept = cut_off
            with pytest.raises(InterruptedError):
                await handled(house, given)
            groups.kept = whole
            assert await handled(house, given) == []
            return questions_on(house.bus)[-1]

        first = await killed_and_again(work)
        rejected = with_answers(work, answer_to(first, "reject", "again"))
        second = await killed_and_again(rejected)
        (sample,) = await handled(house, with_answers(rejected, *(rejected.approvals or ()), answer_to(second)))

    assert (first.answer, "+3" in first.patch) == ("sum", True)
    assert second.answer.endswith("again") and f"+{len(second.answer)}" in second.patch
    assert (sample.text, sample.status, engine.asked) == (second.answer, "finished", 2)


@pytest.mark.parametrize(
    ("code", "approval"), [("print('{}')", "before-finish"), (PERSON + "print(ask_person('{}'))", "never")]
)
async def test_an_answer_is_not_for_what_a_runner_without_the_record_asks(
    code: str, approval: Any, make_house: MakeHouse, make_work: MakeWork, tmp_path: Path
) -> None:
    def program(word: str) -> dict[str, Program]:
        return {"it": python(code.replace("{}", word), approval=approval)}

    work = make_work()
    async with make_house(program("a")) as house:
        await handled(house, work)
        approved = with_answers(work, answer_to(questions_on(house.bus)[0]))
    async with make_house(program("b"), runner_dir=tmp_path / "empty") as other:
        for _ in range(2):
            assert await handled(other, approved) == []

    assert answer_to(questions_on(other.bus)[-1]).approval_id not in {
        one.approval_id for one in approved.approvals or ()
    }


async def test_a_rejection_is_the_programs_next_turn_with_the_files_it_left(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    code = """
said = ask(sys.stdin.read())
open("did.txt", "a").write(f"{len(said)}\\n")
print(said)
"""
    engine, work, answers = Counting(), make_work(input="sum", workspace=FILES), list[GivenApproval]()
    async with make_house({"it": python(code, approval="before-finish")}, engine) as house:
        for decision, text in (("reject", "too long"), ("edit", "3"), ("approve", "")):
            assert await handled(house, with_answers(work, *answers)) == []
            answers.append(answer_to(questions_on(house.bus)[-1], decision, text))  # type: ignore[arg-type]
        (sample,) = await handled(house, with_answers(work, *answers))

    shown = [request.answer for request in questions_on(house.bus)]
    first = "sum\n\nYour answer was:\nsum\n\nA person rejected this:\ntoo long"
    second = f"{first}\n\nYour answer was:\n{first}\n\nA person changed this answer to the following:\n3"
    assert shown == ["sum", first, second]
    assert (sample.text, sample.status, engine.asked) == (second, "finished", 3), "no turn was sampled twice"
    assert sample.usage is not None and sample.usage.calls == 3
    assert sample.artifact is not None
    added = [line[1:] for line in sample.artifact.patch.splitlines() if line.startswith("+") and line[1:].isdigit()]
    assert added == [str(len(one)) for one in shown]
    assert sample.edited is not None and sample.edited.text == "3"
    assert sample.segments is not None and sample.edited.prompt_ids == sample.segments[1].prompt_ids


async def test_a_turn_that_was_cut_off_goes_on_where_it_was(make_house: MakeHouse, make_work: MakeWork) -> None:
    work, engine = make_work(), Gated(free=2)
    code = "task = sys.stdin.read(); print(ask(task), ask(task + '!'))"
    async with make_house({"it": python(code, approval="before-finish")}, engine) as house:
        await handled(house, work)
        rejected = with_answers(work, answer_to(questions_on(house.bus)[0], "reject", "again"))
        engine.free = 3
        handling = asyncio.create_task(house.worker.handle(delivery(rejected)))
        await until(engine.held.is_set)
        await cancelled(handling)
        engine.gate.set()
        assert await handled(house, rejected) == []

    assert (engine.asked, "again" in questions_on(house.bus)[-1].answer) == (4, True)


@pytest.mark.parametrize(
    ("code", "is_kept"),
    [
        ("print(ask('a'))", True),
        ("ask('a'); print('so')", False),
        ("print('so')", False),
    ],
)
async def test_an_edit_teaches_where_the_result_is_what_the_model_said_last(
    code: str, is_kept: bool, make_house: MakeHouse, make_work: MakeWork
) -> None:
    work = make_work()
    async with make_house({"it": python(code, approval="before-finish")}) as house:
        await handled(house, work)
        answers = [answer_to(questions_on(house.bus)[0], "edit", "better")]
        await handled(house, with_answers(work, *answers))
        answers.append(answer_to(questions_on(house.bus)[1]))
        (sample,) = await handled(house, with_answers(work, *answers))

    assert (sample.edited is not None and sample.edited.text == "better") is is_kept


@pytest.mark.parametrize(("code", "asks"), [("open('x', 'w').write('y')", 1), ("pass", 0)])
async def test_a_change_may_need_a_persons_approval(
    code: str, asks: int, make_house: MakeHouse, make_work: MakeWork
) -> None:
    async with make_house({"it": python(code, approval="on-change")}) as house:
        await handled(house, make_work(workspace=FILES))

    assert len(questions_on(house.bus)) == asks


class Gated(EchoEngine):
    """Answers so many calls, and holds the next ones back until `gate` is set."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self.free, self.asked = free, 0
        self.held, self.gate = asyncio.Event(), asyncio.Event()

    async def generate_ids(self, request: Any) -> Any:
        self.asked += 1
        if self.asked > self.free:
            self.held.set()
            await self.gate.wait()
        async for piece in super().generate_ids(request):
            yield piece


async def test_a_rollout_that_was_cut_off_goes_on_where_it_was(make_house: MakeHouse, make_work: MakeWork) -> None:
    program = {"it": python("for turn in range(4): print(ask(f'turn {turn}'))")}
    work, engine = make_work(), Gated(free=2)
    async with make_house(program, engine) as house:
        handling = asyncio.create_task(house.worker.handle(delivery(work)))
        await until(engine.held.is_set)
        await cancelled(handling)
        engine.gate.set()
        (sample,) = await handled(house, work)

    assert sample.text.split("\n") == [f"turn {turn}" for turn in range(4)]
    assert (engine.asked, sample.usage and sample.usage.calls) == (4, 4), "the answer under way was not sampled anew"


async def test_a_work_that_comes_to_another_runner_while_the_first_is_at_it_waits_and_runs_nothing(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    program, work, engine = {"it": python("print(ask('once'))")}, make_work(), Gated(free=0)
    async with make_house(program, engine) as first, make_house(program, engine, first.bus) as second:
        handling = asyncio.create_task(first.worker.handle(delivery(work)))
        await until(engine.held.is_set)
        again = asyncio.create_task(second.worker.handle(delivery(work)))
        looked = second.worker._groups.advance.at()
        await until(lambda: second.worker._groups.advance.at() > looked or engine.asked > 1)
        engine.gate.set()
        await asyncio.gather(handling, again)

        assert engine.asked == 1
        assert len(first.bus.deliveries_published(RESPONSES)) == 1
        assert list((first.worker._settings.runner_dir / FOLDER).iterdir()) == []


async def test_a_program_without_a_pattern_begins_anew_where_it_was_cut_off(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    program: dict[str, Program] = {"it": python("ask(os.urandom(4).hex()); ask('b'); print(ask('c'))")}
    work, engine = make_work(), Gated(free=1)
    async with make_house(program, engine) as house:
        handling = asyncio.create_task(house.worker.handle(delivery(work)))
        await until(engine.held.is_set)
        await cancelled(handling)
        engine.gate.set()
        (sample,) = await handled(house, work)

    assert (sample.text, sample.status) == ("c", "finished")


async def test_a_work_that_comes_again_after_its_end_runs_nothing_though_its_runner_is_another(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    work, engine = make_work(), Counting()
    async with make_house({"it": python("print(ask('once'))")}, engine) as house:
        await handled(house, work)
        house.worker._answers = Answers(house.bus)  # as in a runner that was started after it
        await handled(house, work)
        await handled(house, make_work("t-2"))

        assert len(house.bus.deliveries_published(RESPONSES)) == 2
    assert engine.asked == 2
