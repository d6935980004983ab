"""When frames leave: at once after a silence, together on a busy connection, and in their order."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from pika import URLParameters

from ratchet.bus.amqp.connection import GATHER_S, AmqpConnection
from tests.waiting import settled


class Wire(asyncio.Transport):
    """Keeps what is written, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[float, bytes]] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append((asyncio.get_running_loop().time(), bytes(data)))

    @property
    def chunks(self) -> list[bytes]:
        return [data for _, data in self.written]


def connected() -> tuple[AmqpConnection, Wire]:
    """Its handshake has begun, and that was long enough ago."""
    connection, wire = AmqpConnection(URLParameters("amqp://nobody/")), Wire()
    connection.connection_made(wire)
    connection.flush()
    wire.written.clear()
    return connection, wire


async def test_what_is_sent_in_one_turn_leaves_in_one_write_and_after_a_silence_at_once() -> None:
    connection, wire = connected()
    await settled(2 * GATHER_S)

    connection.send(b"a")
    connection.send(b"b")
    assert wire.chunks == []
    for _ in range(2):
        await asyncio.sleep(0)

    assert wire.chunks == [b"ab"]


async def test_on_a_busy_connection_writes_are_apart_and_nothing_is_lost_or_overtaken() -> None:
    connection, wire = connected()

    for number in range(200):
        connection.send(b"%d," % number)
        await asyncio.sleep(0)
    await settled(3 * GATHER_S)

    assert b"".join(wire.chunks) == b"".join(b"%d," % number for number in range(200))
    times = [at for at, _ in wire.written]
    assert all(later - earlier >= 0.9 * GATHER_S for earlier, later in pairwise(times))


async def test_frames_of_pika_do_not_wait_and_take_along_what_does() -> None:
    connection, wire = connected()
    connection.send(b"first")
    await settled(2 * GATHER_S)

    connection.send(b"second")
    await asyncio.sleep(0)
    connection.send(b"third")
    connection._adapter_emit_data(b"pika")
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert b"".join(wire.chunks) == b"firstsecondthirdpika"
