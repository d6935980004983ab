"""One Response for each Work: made once, whoever asks again, and of a size that a message holds."""

from __future__ import annotations

import asyncio

from ratchet.bus.amqp.forwarding import LARGEST_BODY
from ratchet.bus.topology import RESPONSES, fleet_topology
from ratchet.rollouts.answers import ROOM_FOR_SCORES, Answers, response_of
from schemas.messages.response import ForeignPart, Response, Sample, ToolAudit, Turn
from schemas.messages.work import Sampling, Work
from schemas.messages.workspace import Artifact
from tests.making_work import work
from tests.memory_bus import MemoryBus

TREE = "0" * 64


async def published(*samples: Sample) -> Response:
    bus, asked = MemoryBus(fleet_topology(("small",))), work("t", Sampling(n=len(samples)))
    await bus.start()

    async def respond() -> Response:
        return response_of(asked, samples, source="t")

    assert await Answers(bus).answer(asked, asked.encode(), respond)

    (delivery,) = bus.deliveries_published(RESPONSES)
    assert len(delivery.body) <= LARGEST_BODY - ROOM_FOR_SCORES
    return Response.decode(delivery.body)


def left(size: int) -> Sample:
    """Each character takes six in JSON."""
    return Sample(text="\x01" * (size // 6), status="finished", artifact=Artifact(patch="p", tree_sha256=TREE))


async def test_a_sample_that_leaves_too_much_ends_itself_and_not_its_group() -> None:
    honest = left(1000)

    response = await published(left(LARGEST_BODY), honest)

    greedy, kept = response.samples
    assert kept == honest
    assert (greedy.text, greedy.status, response.response) == ("", "limit", "")
    assert greedy.says is not None and greedy.says.startswith("what it left is 16,77")
    assert greedy.artifact == Artifact(left_out={".": greedy.says}, tree_sha256=TREE)


async def test_a_sample_whose_audit_or_partners_said_too_much_does_not_cost_its_group() -> None:
    large, honest = "x" * LARGEST_BODY, left(1000)
    audit = ToolAudit(changed=(large,), count=1, sha256=TREE)
    part = ForeignPart(role="judge", model="openai:gpt-5", calls=2, turns=(Turn(role="user", content=large),))

    for greedy in (Sample(text="x", tool_audit=audit), Sample(text="x", foreign=(part,))):
        cut, kept = (await published(greedy, honest)).samples

        assert (cut.status, cut.tool_audit, kept) == ("limit", None, honest)
        assert [(one.calls, one.turns) for one in cut.foreign or ()] == [(2, ())] * len(greedy.foreign or ())


async def test_a_share_is_counted_in_bytes_not_in_characters() -> None:
    greedy, honest = Sample(text="語" * (LARGEST_BODY // 6 - 1000)), left(60)

    samples = (await published(greedy, greedy, honest)).samples

    assert ([sample.status for sample in samples], samples[-1]) == (["limit", "limit", "finished"], honest)


async def test_what_one_message_holds_is_sent_as_it_is() -> None:
    large = left(LARGEST_BODY // 3)

    assert (await published(left(60), large)).samples == (left(60), large)


async def test_records_that_no_message_holds_are_told_as_an_error() -> None:
    ids = tuple(range(1_000_000, 2_000_000))

    response = await published(*[Sample(text="x", completion_ids=ids)] * 3)

    assert response.error is not None and "can't be sent" in response.error
    assert response.samples == ()


class House:
    """Answers, of which each is made in five turns of the loop and says how many were made before."""

    def __init__(self, kept_bytes: int = 1 << 20) -> None:
        self.bus = MemoryBus(fleet_topology(("small",)))
        self.answers = Answers(self.bus, kept_bytes)
        self.made = 0
        self.fails = False

    async def ask(self, work: Work) -> bool:
        async def respond() -> Response:
            self.made += 1
            for _ in range(5):
                await asyncio.sleep(0)
            if self.fails:
                raise ValueError("no answer")
            return response_of(work, (Sample(text=f"answer {self.made}"),), source=None)

        return await self.answers.answer(work, work.encode(), respond)

    @property
    def sent_texts(self) -> list[str]:
        return [Response.decode(one.body).response for one in self.bus.deliveries_published(RESPONSES)]


async def test_an_answer_is_made_once_while_it_is_remembered() -> None:
    house, asked = House(), work("t", Sampling())
    await house.bus.start()
    await asyncio.gather(*(house.ask(asked) for _ in range(3)))
    await house.ask(asked)
    assert (house.made, house.sent_texts) == (1, ["answer 1"] * 4)


async def test_a_failure_is_raised_and_tried_again_by_whoever_waits_and_whoever_comes() -> None:
    house, asked = House(), work("t", Sampling())
    await house.bus.start()
    house.fails = True
    failures = await asyncio.gather(*(house.ask(asked) for _ in range(2)), return_exceptions=True)
    assert [str(failure) for failure in failures] == ["no answer"] * 2

    house.fails = False
    await house.ask(asked)
    assert house.sent_texts == ["answer 3"]


async def test_where_an_asker_is_cancelled_the_next_one_gets_its_answer_made() -> None:
    house, asked = House(), work("t", Sampling())
    await house.bus.start()
    asking = asyncio.create_task(house.ask(asked))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(house.ask(asked))
    await asyncio.sleep(0)
    asking.cancel()
    await waiting
    assert house.sent_texts == ["answer 2"]


async def test_memory_is_bounded_in_bytes_and_the_oldest_goes_first() -> None:
    house = House(kept_bytes=10)
    await house.bus.start()
    for name in ("a", "b", "b", "a"):
        await house.ask(work(name, Sampling()))
    assert house.sent_texts == ["answer 1", "answer 2", "answer 2", "answer 3"]
