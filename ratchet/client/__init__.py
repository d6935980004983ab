"""The client library: tasks in, results out, each result once, over AMQP or HTTP (docs/client.md)."""

from ratchet.client.fleet import AsyncFleet, Fleet, Progress

__all__ = ["AsyncFleet", "Fleet", "Progress"]
