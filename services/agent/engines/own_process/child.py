"""The child: an engine, the batches it is given, and an end as soon as its parent is gone.

`python -m services.agent.engines.own_process.child <file descriptor>`; everything else comes over that socket.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import uvloop

from services.agent.engines.engine import Engine, Generation, GenerationRequest
from services.agent.engines.own_process.calls import CANCEL, Answer, Batch, Call, Order, Started
from services.agent.engines.own_process.pipe import Pipe
from services.batcher import Batcher
from services.errors import EngineError, RatchetError


class Child:
    """Answers calls until the pipe ends."""

    def __init__(self, pipe: Pipe, engine: Engine, max_batch: int) -> None:
        self._pipe = pipe
        self._engine = engine
        self._batcher: Batcher[GenerationRequest, Generation] = Batcher(
            self._generate, max_batch=max_batch, size_of=lambda request: request.sampling.n
        )
        self._methods: dict[str, Callable[..., Awaitable[Any]]] = {
            "generate": lambda request: self._batcher.submit(request, priority=request.priority),
            "load_adapter": engine.load_adapter,
            "unload_adapter": engine.unload_adapter,
        }
        self._running: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        while True:
            self._take(await self._pipe.receive())

    def _take(self, call: Call) -> None:
        if call.method != CANCEL:
            self._running[call.number] = asyncio.create_task(self._answer(call))
        elif running := self._running.get(call.number):
            running.cancel()

    async def _answer(self, call: Call) -> None:
        try:
            self._pipe.send(Answer(call.number, await self._methods[call.method](*call.arguments)))
        except Exception as error:
            self._pipe.send(Answer(call.number, portable(error)))
        finally:
            del self._running[call.number]

    async def _generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        self._pipe.send(Batch(sum(request.sampling.n for request in requests)))
        return await self._engine.generate(requests)


def portable(error: Exception) -> RatchetError:
    """Our own errors are sentences and travel; of others, and of what caused them, only the words do."""
    if isinstance(error, RatchetError):
        return type(error)(str(error))
    return EngineError(f"the engine failed: {error!r}")


async def serve(end: socket.socket) -> None:
    """Raises EOFError when the parent closes its end, or is gone."""
    pipe = await Pipe.open(end)
    order: Order = await pipe.receive()
    try:
        engine = order.make()
        await engine.start()
    except Exception as error:
        pipe.send(portable(error))
        await pipe.receive()
    pipe.send(Started(engine.identity, engine.base))
    await Child(pipe, engine, order.max_batch).run()


async def serve_until_closed(end: socket.socket) -> None:
    """Then it is over at once, whatever thread still generates: nobody waits for it."""
    try:
        await serve(end)
    except EOFError:
        os._exit(0)


def main() -> None:
    """A signal to the whole group is the parent's to answer: it finishes what is in hand, then closes the pipe."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    uvloop.run(serve_until_closed(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
