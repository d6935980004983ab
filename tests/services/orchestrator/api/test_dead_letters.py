"""/v1/dead-letters on a real broker: seen whole, and sent back or dismissed by id or by queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from pika.adapters.blocking_connection import BlockingConnection
from pika.spec import BasicProperties

from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.dead_letters.dead_letter_service import DeadLetterService, advice
from ratchet.bus.dead_letters.dismissals import FILE, MOST_BYTES
from ratchet.bus.retry_policy import ATTEMPTS, BY, QUEUE, REASON
from ratchet.bus.topology import DEAD_LETTERS, RESPONSES, fleet_topology
from ratchet.http.access.guard import caller
from ratchet.http.access.roles import Caller, Role
from ratchet.http.problem import Problem
from ratchet.http.work import Threads
from ratchet.service.errors import DiskFull
from services.orchestrator.api.dead_letters import dead_letters_router

pytestmark = pytest.mark.broker


@pytest.fixture
def connection(amqp_url: str, namespace: str) -> Iterator[BlockingConnection]:
    topology = fleet_topology(("small",))
    with open_connection(amqp_url) as connection:
        channel = connection.channel()
        channel.queue_declare(namespace + DEAD_LETTERS, durable=True, arguments=topology.queue(DEAD_LETTERS).arguments)
        arguments = topology.queue(RESPONSES).arguments | {"x-dead-letter-exchange": f"{namespace}ratchet.dead"}
        channel.queue_declare(namespace + RESPONSES, durable=True, arguments=arguments)
        yield connection


@pytest.fixture
async def api(
    amqp_url: str, namespace: str, connection: BlockingConnection, tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    service = DeadLetterService(amqp_url, namespace, logs_dir=tmp_path)
    app.include_router(dead_letters_router(service, Threads("test")))
    app.dependency_overrides[caller] = lambda: Caller("anna", Role.OPERATOR)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        yield client


def bury(connection: BlockingConnection, namespace: str, body: bytes, *, attempts: int = 1) -> None:
    headers = {REASON: f"reason of {body!r}", QUEUE: RESPONSES, ATTEMPTS: attempts, BY: "scorer", "odd": b"\xff"}
    channel = connection.channel()
    channel.confirm_delivery()
    properties = BasicProperties(headers=headers, delivery_mode=2, message_id="m", type="response.v1")
    channel.basic_publish("", namespace + DEAD_LETTERS, body, properties)
    channel.close()


async def test_letters_are_listed_shown_whole_and_sent_back(
    api: httpx.AsyncClient, connection: BlockingConnection, namespace: str
) -> None:
    for body in (b'{"one": 1}', b"\xff\x00", b"three"):
        bury(connection, namespace, body)

    listed = (await api.get("/v1/dead-letters", params={"limit": 2})).json()
    followed = (await api.get("/v1/dead-letters", params={"limit": 2, "cursor": listed["next"]})).json()
    everything = (await api.get("/v1/dead-letters")).json()
    ids = {one["beginning"]: one["id"] for one in everything["items"]}
    text = (await api.get(f"/v1/dead-letters/{ids['three']}")).json()
    binary = (await api.get(f"/v1/dead-letters/{everything['items'][1]['id']}")).json()

    assert (len(listed["items"]), listed["total"]) == (2, 3)
    assert [*listed["items"], *followed["items"]] == everything["items"]
    assert followed["next"] is everything["next"] is None
    assert (text["body"], text["encoding"], text["queue"]) == ("three", "utf-8", namespace + RESPONSES)
    assert "refused again as it is" in text["advice"]
    assert text["headers"]["odd"] == r"\xff"
    assert (binary["body"], binary["encoding"]) == ("/wA=", "base64")

    asked = {"ids": [ids["three"], "000000000000"]}
    one = (await api.post("/v1/dead-letters/requeue", json=asked)).json()
    rest = (await api.post("/v1/dead-letters/requeue", json={"queue": namespace + RESPONSES})).json()

    assert one["sent"] == 1
    assert [stays["id"] for stays in one["stayed"]] == ["000000000000"]
    assert rest == {"sent": 2, "stayed": []}
    assert (await api.get("/v1/dead-letters")).json()["total"] == 0
    channel = connection.channel()
    assert channel.basic_get(namespace + RESPONSES, auto_ack=True)[2] == b"three"


async def test_what_is_dismissed_lies_whole_on_disk_and_the_same_call_again_finds_the_same(
    api: httpx.AsyncClient, connection: BlockingConnection, namespace: str, tmp_path: Path
) -> None:
    for body in (b"one", b"\xff\x00", b"three"):
        bury(connection, namespace, body)
    ids = {one["beginning"]: one["id"] for one in (await api.get("/v1/dead-letters")).json()["items"]}
    asked = {"ids": [ids["one"], "000000000000"], "reason": "a test of the sender's"}

    one = (await api.post("/v1/dead-letters/dismiss", json=asked)).json()
    again = (await api.post("/v1/dead-letters/dismiss", json=asked)).json()
    rest = (await api.post("/v1/dead-letters/dismiss", json={"queue": namespace + RESPONSES, "reason": "too"})).json()

    assert (one["dismissed"], [stays["id"] for stays in one["stayed"]]) == (1, ["000000000000"])
    assert again == one
    assert rest == {"dismissed": 2, "stayed": []}
    assert (await api.get("/v1/dead-letters")).json()["total"] == 0
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [(line["who"], line["reason"]) for line in lines] == [
        ("anna", "a test of the sender's"),
        *[("anna", "too")] * 2,
    ]
    letters = {line["letter"]["id"]: line["letter"] for line in lines}
    text, binary = letters[ids["one"]], letters[ids[r"\xff·"]]
    assert (text["body"], text["encoding"], binary["body"], binary["encoding"]) == ("one", "utf-8", "/wA=", "base64")
    assert (text["properties"]["message_id"], text["properties"]["headers"]["odd"]) == ("m", r"\xff")


async def test_what_was_dismissed_is_restored_once_as_it_came_and_twice_where_a_crash_came_before_the_note(
    api: httpx.AsyncClient, connection: BlockingConnection, namespace: str, tmp_path: Path
) -> None:
    bury(connection, namespace, b"\xff\x00")
    (letter,) = (await api.get("/v1/dead-letters")).json()["items"]
    asked = {"ids": [letter["id"], "000000000000"], "reason": "a slip"}
    await api.post("/v1/dead-letters/dismiss", json=asked)
    dismissed = (tmp_path / FILE).read_bytes()

    restored = [(await api.post("/v1/dead-letters/restore", json=asked)).json() for _ in range(2)]
    no_more = (await api.post("/v1/dead-letters/dismiss", json=asked)).json()
    note = json.loads((tmp_path / FILE).read_bytes().removeprefix(dismissed))
    (tmp_path / FILE).write_bytes(dismissed)  # the note that a crash came before
    await api.post("/v1/dead-letters/restore", json=asked)

    never = {"id": "000000000000", "reason": "no letter of this id was dismissed"}
    assert restored == [{"restored": 1, "stayed": [never]}] * 2
    assert no_more["dismissed"] == 0
    assert (note["who"], note["reason"], note["restored"]) == ("anna", "a slip", letter["id"])
    channel = connection.channel()
    for left in (1, 0):
        got, properties, body = channel.basic_get(namespace + RESPONSES, auto_ack=True)
        assert (body, properties.message_id, properties.type) == (b"\xff\x00", "m", "response.v1")
        assert (got.message_count, properties.headers["odd"], REASON in properties.headers) == (left, b"\xff", False)


async def test_what_can_t_go_to_its_queue_stays_away_until_it_can(
    api: httpx.AsyncClient, connection: BlockingConnection, namespace: str
) -> None:
    bury(connection, namespace, b"one")
    (letter,) = (await api.get("/v1/dead-letters")).json()["items"]
    asked = {"ids": [letter["id"]], "reason": "a slip"}
    await api.post("/v1/dead-letters/dismiss", json=asked)
    connection.channel().queue_delete(namespace + RESPONSES)

    stays = (await api.post("/v1/dead-letters/restore", json=asked)).json()
    connection.channel().queue_declare(namespace + RESPONSES, durable=True)
    back = (await api.post("/v1/dead-letters/restore", json=asked)).json()

    assert (stays["restored"], "no queue" in stays["stayed"][0]["reason"]) == (0, True)
    assert back == {"restored": 1, "stayed": []}


async def test_without_a_reason_or_room_on_disk_nothing_is_dismissed(
    api: httpx.AsyncClient, connection: BlockingConnection, namespace: str, tmp_path: Path
) -> None:
    bury(connection, namespace, b"one")
    every = {"queue": namespace + RESPONSES}
    assert (await api.post("/v1/dead-letters/dismiss", json=every | {"reason": " "})).status_code == 422
    with (tmp_path / FILE).open("wb") as file:
        file.truncate(MOST_BYTES)

    with pytest.raises(DiskFull, match="move it elsewhere"):
        await api.post("/v1/dead-letters/dismiss", json=every | {"reason": "no use"})

    assert (await api.get("/v1/dead-letters")).json()["total"] == 1


async def test_who_sends_back_waits_for_one_look_and_not_for_all_who_want_one(
    api: httpx.AsyncClient, connection: BlockingConnection, namespace: str
) -> None:
    for number in range(30):
        bury(connection, namespace, b"%d" % number)
    ended: list[str] = []

    async def ask(what: str, *, send: bool = False) -> None:
        if send:
            await api.post("/v1/dead-letters/requeue", json={"ids": ["none"]})
        else:
            with suppress(Problem):
                await api.get("/v1/dead-letters/none")
        ended.append(what)

    looks = [asyncio.create_task(ask("look")) for _ in range(8)]
    await asyncio.sleep(0)
    await asyncio.gather(*looks, ask("requeue", send=True))

    assert ended.index("requeue") <= 2
    assert len(ended) == 9


async def test_what_is_no_cursor_is_refused(api: httpx.AsyncClient) -> None:
    with pytest.raises(Problem, match="cursor"):
        await api.get("/v1/dead-letters", params={"cursor": "abc"})


async def test_what_is_not_there_and_what_is_not_asked_clearly(api: httpx.AsyncClient) -> None:
    assert (await api.post("/v1/dead-letters/requeue", json={})).status_code == 422
    assert (await api.post("/v1/dead-letters/requeue", json={"ids": ["a"], "queue": "b"})).status_code == 422
    gone = await api.post("/v1/dead-letters/requeue", json={"ids": ["a"]})
    assert (gone.json()["sent"], gone.json()["stayed"][0]["id"]) == (0, "a")


def test_the_advice_says_how_often_it_failed(
    connection: BlockingConnection, amqp_url: str, namespace: str, tmp_path: Path
) -> None:
    bury(connection, namespace, b"again and again", attempts=8)

    (letter,), _ = DeadLetterService(amqp_url, namespace, logs_dir=tmp_path).oldest(1)

    assert advice(letter).startswith("It failed 8 times")
