"""What is published of a group's samples where one message can't hold them all."""

from __future__ import annotations

from datetime import UTC, datetime

from ratchet.bus.amqp.forwarding import LARGEST_BODY
from ratchet.bus.memory import MemoryBus
from ratchet.bus.topology import RESPONSES, fleet_topology
from ratchet.rollouts.recording import ROOM_FOR_SCORES, publish_response, response_of
from schemas.messages.response import GenerationLatencies, Response, Sample
from schemas.messages.work import Sampling
from schemas.messages.workspace import Artifact
from tests.making_work import work

TREE = "0" * 64


async def published(*samples: Sample) -> Response:
    bus, asked = MemoryBus(fleet_topology(("small",))), work("t", Sampling(n=len(samples)))
    await bus.start()
    nothing = GenerationLatencies(queue_s=0.0, generate_s=0.0)
    response = response_of(asked, samples, engine=None, source="t", now=datetime.now(UTC), latencies=nothing)

    await publish_response(bus, response, asked.encode())

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
