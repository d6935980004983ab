"""The hub of events: each client its own place, the slow one alone bears its slowness, and memory has a bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from services.orchestrator.observation.event_hub import HEARTBEAT, EventHub
from tests.waiting import until

ALL: frozenset[str] = frozenset()


class Client:
    """Reads its stream to the end."""

    def __init__(self, hub: EventHub, last_id: str | None = None, kinds: frozenset[str] = ALL) -> None:
        self.stream: AsyncGenerator[bytes, None] = hub.stream(last_id, kinds)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.ids: list[str] = []
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for part in self.stream:
            for block in part.decode().split("\n\n")[:-1]:
                fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
                if "id" in fields:
                    self.ids.append(fields["id"])
                if "data" in fields:
                    self.events.append((fields["event"], msgspec.json.decode(fields["data"])))

    def numbers(self) -> list[int]:
        return [data["n"] for kind, data in self.events if kind == "e"]

    async def leave(self) -> None:
        self.reading.cancel()
        await asyncio.wait((self.reading,))
        await self.stream.aclose()


async def joined(hub: EventHub, count: int) -> None:
    await until(lambda: hub.clients == count)


async def test_who_listens_gets_what_happens_from_then_on_in_order() -> None:
    hub = EventHub("now")
    hub.publish("e", {"n": 0})
    one, two = Client(hub), Client(hub, kinds=frozenset({"rare"}))
    await joined(hub, 2)

    for number in range(1, 300):
        hub.publish("e", {"n": number})
    hub.publish("rare", {"text": "ä\nb"})

    await until(lambda: len(one.events) == 300 and len(two.events) == 1)
    assert one.numbers() == list(range(1, 300))
    assert two.events == [("rare", {"text": "ä\nb"})]
    hub.close()
    await asyncio.wait((one.reading, two.reading), timeout=30)
    assert one.reading.done()
    assert two.reading.done()


async def test_who_comes_back_goes_on_after_the_last_event_it_had() -> None:
    hub = EventHub("now")
    first = Client(hub)
    await joined(hub, 1)
    for number in range(5):
        hub.publish("e", {"n": number})
    await until(lambda: first.numbers() == [0, 1, 2, 3, 4])
    third = first.ids[3]
    other = Client(hub)
    await first.leave()
    hub.publish("e", {"n": 5})

    again = Client(hub, third)

    await until(lambda: again.numbers() == [3, 4, 5])
    for client in (other, again):
        await client.leave()
    assert hub.clients == 0


async def test_who_comes_back_too_late_or_from_before_the_start_is_told_of_the_gap_and_goes_on() -> None:
    hub = EventHub("now", size=10)
    for number in range(30):
        hub.publish("e", {"n": number})

    late, stranger, liar = Client(hub, "now-5"), Client(hub, "before-5"), Client(hub, "now-99")
    await joined(hub, 3)
    hub.publish("e", {"n": 30})

    await until(lambda: all(client.numbers()[-1:] == [30] for client in (late, stranger, liar)))
    assert late.events[0] == ("gap", {"missed": 15})
    assert late.numbers() == list(range(20, 31))
    assert stranger.events[0] == liar.events[0] == ("gap", {"missed": 0})
    for client in (late, stranger, liar):
        await client.leave()


async def test_tasks_that_nobody_listened_to_are_a_gap_for_who_comes_back() -> None:
    hub = EventHub("now")
    client = Client(hub)
    await joined(hub, 1)
    await client.leave()
    for _ in range(7):
        hub.pass_over()

    again = Client(hub, client.ids[-1])

    await until(lambda: again.events == [("gap", {"missed": 7})])
    await again.leave()


async def test_a_thousand_listen_and_one_reads_nothing() -> None:
    hub = EventHub("now", size=256)
    stopped = hub.stream(None, ALL)
    await anext(stopped)
    seen = [0] * 998
    reader = Client(hub)
    counting = [asyncio.create_task(count(hub, seen, place)) for place in range(len(seen))]
    await joined(hub, 1000)

    for wave in range(4):
        for number in range(200):
            hub.publish("e", {"n": wave * 200 + number})
        await until(lambda wave=wave: min(seen) == wave * 200 + 200)  # type: ignore[misc]

    assert set(seen) == {800}
    assert reader.numbers() == list(range(800))
    assert (await anext(stopped)).count(b"event: gap") == 1
    assert (await anext(stopped)).count(b"event: e") == 256
    await stopped.aclose()
    hub.close()
    await asyncio.wait((reader.reading, *counting), timeout=30)
    assert hub.clients == 0


async def count(hub: EventHub, seen: list[int], place: int) -> None:
    async for part in hub.stream(None, ALL):
        seen[place] += part.count(b"\nevent: e\n")


async def test_a_full_house_lets_nobody_else_in() -> None:
    hub = EventHub("now", most_clients=2)
    clients = [Client(hub), Client(hub)]
    await joined(hub, 2)

    full = [hub.is_full]
    await clients[0].leave()
    full.append(hub.is_full)
    await clients[1].leave()
    assert full == [True, False]


async def test_who_waits_for_something_rare_hears_on_a_busy_fleet_that_it_is_still_there() -> None:
    hub = EventHub("now", heartbeat_s=0.2)
    stream = hub.stream(None, frozenset({"rare"}))
    await anext(stream)

    async def busy() -> None:
        while True:
            hub.publish("e", {})
            await asyncio.sleep(0.02)  # real time: more often than the heartbeat

    publishing = asyncio.create_task(busy())
    async with asyncio.timeout(30):
        assert await anext(stream) == HEARTBEAT
    publishing.cancel()
    await stream.aclose()


async def test_after_a_quiet_time_the_next_event_comes_as_ever() -> None:
    hub = EventHub("now", heartbeat_s=0.02)
    stream = hub.stream(None, ALL)
    await anext(stream)
    assert await anext(stream) == HEARTBEAT

    hub.publish("e", {"n": 1})

    async with asyncio.timeout(30):
        assert b"event: e" in await anext(stream)
    await stream.aclose()


async def test_a_stream_ends_in_time_so_that_its_client_comes_back_with_a_token_that_counts() -> None:
    hub = EventHub("now", heartbeat_s=0.01, longest_s=0.05)
    client = Client(hub)

    await asyncio.wait((client.reading,), timeout=30)

    assert client.reading.done()
    assert hub.clients == 0
