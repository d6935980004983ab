"""One AMQP connection: pika's protocol machine on an asyncio transport, with a short path for the frames that count.

pika does the handshake, channels, calls and heartbeats. Deliveries and confirms are read, and messages and acks
written, by ratchet/bus/amqp/frames.py. All frames of one turn of the event loop leave in one write, and on a busy
connection what comes within GATHER_S of the last write leaves together: the broker's cost is by the write. The hooks
used are those pika has for its adapters; it is pinned, and a test names them.
Leaves out: connecting again after a loss (ratchet/bus/amqp/link.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from pika.connection import Connection, Parameters
from pika.exceptions import InvalidFrameError, StreamLostError
from pika.frame import decode_frame

from ratchet.bus.amqp.frames import (
    ACK,
    BODY,
    CONTENT_START,
    DELIVER,
    FRAME_END,
    FRAME_OVERHEAD,
    FRAME_START,
    HEADER,
    METHOD,
    METHOD_ID,
    NACK,
    TAG,
    Properties,
    read_deliver,
    read_properties,
)
from ratchet.service.settings import amqp_parameters

HEARTBEAT_S = 30
CONNECT_TIMEOUT_S = 15.0
GATHER_S = 0.004
"""Between two writes of messages and acks. After a longer silence, and for pika's own frames, there is no wait."""


Receiver = Callable[[int, bool, Properties, bytes], None]
"""Takes a delivery: its tag, whether it was delivered before, its properties and its body."""


class Arriving:
    """A delivery of which not all frames are here yet."""

    __slots__ = ("missing", "parts", "properties", "redelivered", "tag")

    def __init__(self, tag: int, redelivered: bool) -> None:
        self.tag = tag
        self.redelivered = redelivered
        self.properties: Properties
        self.parts: list[bytes] = []
        self.missing = 0

    def take(self, kind: int, raw: bytes, offset: int, size: int) -> bool:
        """True when this frame completes it."""
        if kind == HEADER:
            self.missing = TAG.unpack_from(raw, offset + 4)[0]
            self.properties = read_properties(raw, offset + 12)
        else:
            self.parts.append(raw[offset : offset + size])
            self.missing -= size
        return self.missing <= 0


class AmqpConnection(Connection, asyncio.Protocol):  # type: ignore[misc]
    """`opened` resolves when the handshake is over, `closed` with the reason when the connection is gone."""

    def __init__(self, parameters: Parameters) -> None:
        self._loop = asyncio.get_running_loop()
        self._stream: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._flushed_at = 0.0
        self._rest = b""
        self._arriving: dict[int, Arriving] = {}
        self.receivers: dict[int, Receiver] = {}
        """Consumers of deliveries by channel number."""
        self.confirms: dict[int, Callable[[int, bool, bool], None]] = {}
        """Takers of publisher confirms, as (tag, multiple, nack), by channel number."""
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[BaseException] = self._loop.create_future()
        super().__init__(
            parameters,
            on_open_callback=self._note_opened,
            on_open_error_callback=self._note_closed,
            on_close_callback=self._note_closed,
            internal_connection_workflow=False,
        )

    def _note_opened(self, _connection: Connection) -> None:
        if not self.opened.done():
            self.opened.set_result(None)

    def _note_closed(self, _connection: Connection, reason: BaseException) -> None:
        if not self.closed.done():
            self.closed.set_result(reason)
        if not self.opened.done():
            self.opened.set_exception(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stream = cast(asyncio.Transport, transport)
        self._on_stream_connected()

    def data_received(self, data: bytes) -> None:
        raw = self._rest + data if self._rest else data
        self.bytes_received += len(data)
        offset = 0
        while len(raw) - offset >= FRAME_OVERHEAD:
            kind, number, size = FRAME_START.unpack_from(raw, offset)
            end = offset + size + FRAME_OVERHEAD
            if end > len(raw):
                break
            if raw[end - 1] != FRAME_END:
                raise InvalidFrameError(f"a frame of {size} bytes has no end")
            if kind == METHOD and number in self.receivers and (behind := self._take_whole(number, raw, offset, end)):
                offset = behind
                continue
            if not self._take_short_path(kind, number, raw, offset + 7, size):
                self._process_frame(decode_frame(raw[offset:end])[1])
            offset = end
        self._rest = raw[offset:]

    def _take_whole(self, number: int, raw: bytes, offset: int, end: int) -> int:
        """Takes a delivery whose three frames are all here, as nearly all of them are, and returns where they end.

        0 for any other frame, and for a delivery that is not so: then nothing was taken.
        """
        if METHOD_ID.unpack_from(raw, offset + 7)[0] != DELIVER or len(raw) < end + CONTENT_START.size:
            return 0
        kind, same, size, _, _, body_size = CONTENT_START.unpack_from(raw, end)
        body = end + size + FRAME_OVERHEAD
        behind: int = body + body_size + FRAME_OVERHEAD
        if kind != HEADER or same != number or len(raw) < behind:
            return 0
        if FRAME_START.unpack_from(raw, body) != (BODY, number, body_size):
            return 0
        if raw[body - 1] != FRAME_END or raw[behind - 1] != FRAME_END:
            return 0
        tag, redelivered = read_deliver(raw, offset + 11)
        properties = read_properties(raw, end + CONTENT_START.size)
        self.receivers[number](tag, redelivered, properties, raw[body + 7 : behind - 1])
        return behind

    def _take_short_path(self, kind: int, number: int, raw: bytes, offset: int, size: int) -> bool:
        """True for a frame of a delivery or a confirm on a channel that awaits such; the rest is pika's."""
        if kind == METHOD:
            method = METHOD_ID.unpack_from(raw, offset)[0]
            if method == DELIVER and number in self.receivers:
                self._arriving[number] = Arriving(*read_deliver(raw, offset + 4))
                return True
            if method in (ACK, NACK) and number in self.confirms:
                tag, multiple = TAG.unpack_from(raw, offset + 4)[0], bool(raw[offset + 12] & 1)
                self.confirms[number](tag, multiple, method == NACK)
                return True
            return False
        arriving = self._arriving.get(number)
        if arriving is None:
            return False
        if arriving.take(kind, raw, offset, size):
            del self._arriving[number]
            self.receivers[number](arriving.tag, arriving.redelivered, arriving.properties, b"".join(arriving.parts))
        return True

    def send(self, frames: bytes) -> None:
        """Frames as ratchet/bus/amqp/frames.py writes them. The channel they are for must be open."""
        if not self._outgoing:
            self._loop.call_at(self._flushed_at + GATHER_S, self.flush)
        self._outgoing.append(frames)

    def connection_lost(self, error: Exception | None) -> None:
        self._stream = None
        known = error is not None or self._error is not None
        self._on_stream_terminated(error if known else StreamLostError("the broker closed the connection"))

    def forget(self, number: int) -> None:
        """A channel is gone; its number may be used again."""
        self.receivers.pop(number, None)
        self.confirms.pop(number, None)
        self._arriving.pop(number, None)

    @property
    def frame_max(self) -> int:
        """Bytes, as negotiated."""
        return int(self.params.frame_max)

    def flush(self) -> None:
        """Hand what was sent in this turn of the loop to the socket now."""
        if self._outgoing and self._stream is not None:
            self._stream.write(b"".join(self._outgoing))
            self._flushed_at = self._loop.time()
        self._outgoing.clear()

    def abort(self, reason: Exception) -> None:
        """Give up a connection that does not answer."""
        if self._stream is not None:
            self._error = reason
            self._stream.abort()

    def _adapter_emit_data(self, data: bytes) -> None:
        self._outgoing.append(data)
        self._loop.call_soon(self.flush)

    def _adapter_disconnect_stream(self) -> None:
        self.flush()
        if self._stream is None:
            return
        if self._stream.get_write_buffer_size():
            self._stream.abort()
        else:
            self._stream.close()

    def _adapter_connect_stream(self) -> None:
        raise NotImplementedError("the stream is connected by open_connection")

    def _adapter_call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay, callback)

    def _adapter_remove_timeout(self, timeout_id: asyncio.TimerHandle) -> None:
        timeout_id.cancel()

    def _adapter_add_callback_threadsafe(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(callback)


def connection_parameters(amqp_url: str, name: str, heartbeat_s: int = HEARTBEAT_S) -> Parameters:
    """Parse the URL. The name is shown in the broker's list of connections. Raises SettingsError."""
    parameters = amqp_parameters(amqp_url)
    parameters.client_properties = {"connection_name": name}
    if parameters.heartbeat is None:
        parameters.heartbeat = heartbeat_s
    return parameters


async def open_connection(parameters: Parameters) -> AmqpConnection:
    """Raises OSError, TimeoutError or AMQPError."""
    connection = AmqpConnection(parameters)
    tls = parameters.ssl_options
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection,
                parameters.host,
                parameters.port,
                ssl=tls.context if tls else None,
                server_hostname=(tls.server_hostname or parameters.host) if tls else None,
            )
            await connection.opened
        except asyncio.CancelledError:
            connection.abort(StreamLostError("gave up connecting"))
            raise
    return connection
