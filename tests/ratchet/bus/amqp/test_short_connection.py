"""A connection for a command: what keeps it from coming about is a sentence."""

from __future__ import annotations

import socket

import pytest

from ratchet.bus.amqp.short_connection import BrokerUnreachable, open_connection


def test_a_broker_that_takes_connections_and_hangs_is_told_from_one_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"amqp://guest:guest@127.0.0.1:{silent.getsockname()[1]}/%2F"
        hangs = f"{url}?stack_timeout=1"

        with pytest.raises(BrokerUnreachable, match="takes a connection and says nothing"), open_connection(hangs):
            raise AssertionError("connected")

    with pytest.raises(BrokerUnreachable, match="nobody answers"), open_connection(url):
        raise AssertionError("connected")
