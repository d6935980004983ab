"""How who records reaches a fleet: a bus with a queue of its own, the model that is served, its chat template."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import httpx

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.amqp.short_connection import BrokerUnreachable, connected, without_password
from ratchet.bus.topology import Queue, Topology
from ratchet.conversation.template import ChatTemplate
from ratchet.openai.errors import ServerUnavailable
from ratchet.recorder.agent import served_model
from ratchet.service.errors import BusError, EngineError
from schemas.api.generate import ServedModel

CONNECT_S = 30.0
EXPIRES_MS = 3_600_000
"""Its queue is kept so long for one who comes back."""
MOST_BYTES = 64 * 1024 * 1024


async def served_by(http: httpx.AsyncClient, urls: Sequence[str]) -> ServedModel:
    """By the first replica that answers. Raises AgentRefused, ServerUnavailable."""
    for url in urls[:-1]:
        with suppress(ServerUnavailable):
            return await served_model(http, url)
    return await served_model(http, urls[-1])


def template_for(served: ServedModel, tokenizer: str | None = None) -> ChatTemplate:
    """`tokenizer`: folder or hub name, if not what the agent says it is.

    Raises EngineError where the model can't be talked with.
    """
    from ratchet.models.tokenization import TOKENIZER_FILES, model_folder, template_of

    if served.context is None:
        raise EngineError(f"{served.engine} takes no token ids, so nothing it says can be recorded")
    name = tokenizer or served.tokenizer
    if name is None:
        raise EngineError("the agent does not say which tokenizer its model has: name its folder with --tokenizer")
    template = template_of(model_folder(name, served.revision, files=TOKENIZER_FILES))
    if template is None:
        raise EngineError(f"{name} has no chat template: an agent can't talk with it")
    return template


async def own_bus(amqp_url: str, namespace: str, queue: str, *, name: str) -> RabbitBus:
    """Of one who answers Work that comes to `queue`, which is made if need be. Started.

    Raises BrokerUnreachable, at once where nobody answers at first.
    """
    await asyncio.to_thread(_require_broker, amqp_url)
    own = Queue(
        queue,
        "any",
        ("orchestrator",),
        ("whoever records",),
        "What comes to one who records.",
        1.0,
        MOST_BYTES,
        dead_letters=False,
        expires_ms=EXPIRES_MS,
    )
    bus = RabbitBus(amqp_url, Topology((own,), ()), name=name, namespace=namespace, declare=False)
    try:
        async with asyncio.timeout(CONNECT_S):
            await bus.start()
    except TimeoutError:
        where = without_password(amqp_url)
        raise BrokerUnreachable(f"no fleet at {where} within {CONNECT_S:g} s ({bus.trouble()})") from None
    return bus


def delete_queue(amqp_url: str, queue: str) -> None:
    """By its name on the wire, once nothing comes any more. If it can't be, it expires."""
    with suppress(BusError), connected(amqp_url) as connection:
        connection.channel().queue_delete(queue)


def _require_broker(amqp_url: str) -> None:
    with connected(amqp_url):
        pass
