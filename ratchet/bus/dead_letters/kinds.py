"""The two queues a person looks after, and how a message of each is read and sent on: dead letters, and the unroutable.

An unroutable message was published under a name no queue has, so its routing key is the queue it is for. It went
through no service: nothing tells when or by whom. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.bus.amqp.frames import Properties
from ratchet.bus.amqp.table import edit_headers
from ratchet.bus.dead_letters.letter import DeadLetter, beginning, dead_letter, headers_to_go_again, identity
from ratchet.bus.retry_policy import travels
from ratchet.bus.topology import DEAD_LETTERS, UNROUTABLE


@dataclass(frozen=True, slots=True)
class Kind:
    """`read` takes the routing key, the properties, the body and the namespace.

    `absent`: why a message stays for whose `{queue}` there is none.
    """

    queue: str
    read: Callable[[str, Properties, bytes, str], DeadLetter]
    headers: Callable[[Mapping[str, Any] | None], Mapping[str, Any]]
    absent: str


def _dead(_routing_key: str, properties: Properties, body: bytes, namespace: str) -> DeadLetter:
    return dead_letter(properties, body, namespace)


def _unroutable(routing_key: str, properties: Properties, body: bytes, _namespace: str) -> DeadLetter:
    return DeadLetter(
        id=identity(properties, body),
        queue=routing_key,
        reason=f"it was sent to {routing_key!r}, and there was no such queue",
        attempts=None,
        at=None,
        by=properties.app_id,
        type=properties.type,
        message_id=properties.message_id,
        size=len(body),
        beginning=beginning(body),
    )


DEAD = Kind(DEAD_LETTERS, _dead, headers_to_go_again, "there is no queue {queue} any more")
LOST = Kind(
    UNROUTABLE,
    _unroutable,
    lambda headers: edit_headers(headers, travels, {}),
    "there is no queue {queue}: if that is misspelt, have its sender mend it and send it anew; if its agent is not in "
    "RATCHET_AGENTS, add it and start it",
)
ADVICE_ON_LOST = (
    "There was no queue of that name. If it is misspelt, have its sender mend it and send it anew. If its agent was "
    "not in RATCHET_AGENTS, add and start it, then: `ratchet dead-letters requeue --all --unroutable`."
)
