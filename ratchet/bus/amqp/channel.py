"""One AMQP channel whose calls can be awaited: a channel that is lost fails its calls and leaves none waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pika.channel import Channel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from ratchet.bus.amqp.connection import AmqpConnection
from ratchet.service.errors import BusError

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


def resolving(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    """A callback that resolves the future with its argument, unless its owner gave up."""

    def resolve(value: Any) -> None:
        if not future.done():
            future.set_result(value)

    return resolve


class AmqpChannel:
    """One channel, its calls awaitable. `lost` resolves with the reason when the channel is gone."""

    def __init__(self, connection: AmqpConnection, raw: Channel) -> None:
        self.connection = connection
        self.raw = raw
        self.number: int = raw.channel_number
        self.lost: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        raw.add_on_close_callback(self._note_lost)

    def _note_lost(self, _channel: Channel, reason: BaseException) -> None:
        self.connection.forget(self.number)
        if not self.lost.done():
            self.lost.set_result(reason)

    async def call(self, method: Callable[..., Any], **arguments: Any) -> Any:
        """Await the broker's answer to one of the channel's methods. Raises ChannelLost, TimeoutError."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            method(**arguments, callback=resolving(answer))
        except AMQPError as error:
            raise ChannelLost(error) from error
        return await self.wait_for_answer(answer)

    async def wait_for_answer(self, answer: asyncio.Future[Any]) -> Any:
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
    channel = AmqpChannel(connection, raw)
    await channel.wait_for_answer(opened)
    return channel
