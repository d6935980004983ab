"""One AMQP connection: pika's protocol machine on an asyncio transport, one socket write per turn of the event loop.

pika's own asyncio adapter hands each frame to the socket by itself; here all frames of a turn leave together, which
halves the broker's share of the work. Only the hooks that pika gives to every adapter are filled in.
Leaves out: connecting again after a loss (services/amqp_link.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from pika import URLParameters
from pika.channel import Channel
from pika.connection import Connection, Parameters
from pika.exceptions import AMQPError, ChannelClosedByBroker, StreamLostError

from services.errors import BusError

HEARTBEAT_S = 30
CONNECT_TIMEOUT_S = 15.0
CALL_TIMEOUT_S = 30.0


class ChannelLost(BusError):
    """A channel is closed: by the broker, with a `code` that says why, or with its connection."""

    def __init__(self, reason: BaseException | None) -> None:
        self.code: int | None = None
        if isinstance(reason, ChannelClosedByBroker):
            self.code = reason.reply_code
            super().__init__(reason.reply_text)
        else:
            super().__init__(f"channel or connection closed: {reason!r}")


class AmqpConnection(Connection, asyncio.Protocol):  # type: ignore[misc]
    """`opened` resolves when the handshake is over, `closed` with the reason when the connection is gone."""

    def __init__(self, parameters: Parameters) -> None:
        self._loop = asyncio.get_running_loop()
        self._stream: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
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
        self._on_data_available(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._stream = None
        known = error is not None or self._error is not None
        self._on_stream_terminated(error if known else StreamLostError("the broker closed the connection"))

    def flush(self) -> None:
        """Hand what was sent in this turn of the loop to the socket now."""
        if self._outgoing and self._stream is not None:
            self._stream.write(b"".join(self._outgoing))
        self._outgoing.clear()

    def abort(self, reason: Exception) -> None:
        """Give up a connection that does not answer."""
        if self._stream is not None:
            self._error = reason
            self._stream.abort()

    def _adapter_emit_data(self, data: bytes) -> None:
        if not self._outgoing:
            self._loop.call_soon(self.flush)
        self._outgoing.append(data)

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


def connection_parameters(amqp_url: str, name: str) -> Parameters:
    """As in the URL; the name is shown in the broker's list of connections."""
    parameters = URLParameters(amqp_url)
    parameters.client_properties = {"connection_name": name}
    if parameters.heartbeat is None:
        parameters.heartbeat = HEARTBEAT_S
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


def resolving(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    """A callback that resolves the future with its argument, unless its owner gave up."""

    def resolve(value: Any) -> None:
        if not future.done():
            future.set_result(value)

    return resolve


class AmqpChannel:
    """One channel, its calls awaitable. `lost` resolves with the reason when the channel is gone."""

    def __init__(self, raw: Channel) -> None:
        self.raw = raw
        self.lost: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        raw.add_on_close_callback(self._note_lost)

    def _note_lost(self, _channel: Channel, reason: BaseException) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    async def call(self, method: Callable[..., Any], **arguments: Any) -> Any:
        """Await the broker's answer to one of the channel's methods. Raises ChannelLost, TimeoutError."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            method(**arguments, callback=resolving(answer))
        except AMQPError as error:
            raise ChannelLost(error) from error
        return await self.answered(answer)

    async def answered(self, answer: asyncio.Future[Any]) -> Any:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await asyncio.wait((answer, self.lost), return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise ChannelLost(self.lost.result())

    def close(self) -> None:
        """Unacknowledged deliveries go back to their queues."""
        if self.raw.is_open:
            self.raw.close()


async def open_channel(connection: AmqpConnection) -> AmqpChannel:
    """Raises ChannelLost, TimeoutError."""
    opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    try:
        raw = connection.channel(on_open_callback=resolving(opened))
    except AMQPError as error:
        raise ChannelLost(error) from error
    channel = AmqpChannel(raw)
    await channel.answered(opened)
    return channel
