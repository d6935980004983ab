"""The client library: tasks in, results out, each result once, over AMQP or HTTP (docs/client.md)."""

from ratchet.client.async_fleet import AsyncFleet, Progress
from ratchet.client.sync_fleet import Fleet

__all__ = ["AsyncFleet", "Fleet", "Progress"]
