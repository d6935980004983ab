"""One short-lived connection to the broker for a command that asks or moves messages, its failures as sentences.

It reads whatever properties outsiders write, which pika alone does not, and sends them on byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import pika
from pika.adapters.blocking_connection import BlockingConnection
from pika.adapters.select_connection import SelectConnection
from pika.adapters.utils.connection_workflow import AMQPConnectorStackTimeout
from pika.exceptions import AMQPConnectionError, AMQPError, ProbableAuthenticationError
from pika.frame import Header, decode_frame
from pika.spec import FRAME_HEADER, BasicProperties

from ratchet.bus.amqp.frames import FRAME_OVERHEAD, FRAME_START, TAG, Properties, read_properties, write_properties
from ratchet.service.errors import BusError
from ratchet.service.settings import amqp_parameters

SOCKET_TIMEOUT_S = 5.0


class Carried(BasicProperties):  # type: ignore[misc]
    """Properties as `ratchet.bus.amqp.frames` reads and writes them, where pika wants its own."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(**{field.name: getattr(properties, field.name) for field in fields(Properties)})
        self.properties = properties

    def encode(self) -> list[bytes]:
        return [write_properties(self.properties)]


class _Connection(SelectConnection):  # type: ignore[misc]
    def _read_frame(self) -> tuple[int, Any]:
        raw = bytes(self._frame_buffer)
        if len(raw) < FRAME_OVERHEAD or raw[0] != FRAME_HEADER:
            return cast(tuple[int, Any], decode_frame(raw))
        _, number, size = FRAME_START.unpack_from(raw)
        if len(raw) < size + FRAME_OVERHEAD:
            return 0, None
        properties = Carried(read_properties(raw[: 7 + size], 7 + 12))
        return size + FRAME_OVERHEAD, Header(number, TAG.unpack_from(raw, 7 + 4)[0], properties)


class BrokerUnreachable(BusError):
    """No broker answers at the AMQP URL, or not with these credentials."""


def without_password(url: str) -> str:
    """Return the URL for people to read: amqp://user@host:port/vhost."""
    parts = urlsplit(url)
    user = f"{parts.username}@" if parts.username else ""
    port = f":{parts.port}" if parts.port else ""
    return urlunsplit((parts.scheme, f"{user}{parts.hostname or ''}{port}", parts.path, "", ""))


def parameters(url: str) -> pika.URLParameters:
    """Raises SettingsError for what is not an AMQP URL."""
    given = amqp_parameters(url)
    given.socket_timeout = SOCKET_TIMEOUT_S
    given.blocked_connection_timeout = 30.0
    return given


def unreachable(url: str, error: BaseException) -> BrokerUnreachable:
    """Return the error to raise for what pika raised."""
    hangs = isinstance(error, AMQPConnectorStackTimeout)
    return broker_unreachable(url, hangs=hangs, refused=isinstance(error, ProbableAuthenticationError))


def broker_unreachable(url: str, *, hangs: bool, refused: bool) -> BrokerUnreachable:
    """`hangs`: a connection was made, and nothing came. `refused`: the user or the password was."""
    if hangs:
        return BrokerUnreachable(
            f"the broker at {without_password(url)} takes a connection and says nothing: it hangs, or has too much "
            f"to do. Look at its log and its machine; if it does not come back, restart it: it loses nothing"
        )
    why = "it refuses the user or password" if refused else "nobody answers"
    return BrokerUnreachable(
        f"no broker at {without_password(url)}: {why}. `ratchet up` starts one; or set RATCHET_AMQP_URL to yours"
    )


@contextmanager
def open_connection(url: str) -> Iterator[BlockingConnection]:
    """Raises BrokerUnreachable; an error of the broker within the block becomes a BusError."""
    try:
        connection = BlockingConnection(parameters(url), _impl_class=_Connection)
    except (AMQPConnectionError, AMQPConnectorStackTimeout, OSError) as error:
        raise unreachable(url, error) from None
    try:
        yield connection
    except AMQPError as error:
        raise BusError(f"the broker at {without_password(url)} refused: {error!r}") from error
    finally:
        if connection.is_open:
            connection.close()
