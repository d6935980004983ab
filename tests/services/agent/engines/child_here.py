"""A child that is a thread of this process: the same calls over the same socket, without the seconds of a start."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

from services.agent.engines.own_process.calls import Order
from services.agent.engines.own_process.child import STEP_EVERY_S, serve
from services.agent.engines.own_process.child_process import ChildProcess, Pipe


class ThreadAsProcess:
    def __init__(self, end: socket.socket, step_every_s: float) -> None:
        self._step_every_s = step_every_s
        self.pid = os.getpid()
        self._end = end
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._end:
            serve(self._end, self._step_every_s)

    async def wait(self) -> int:
        await asyncio.to_thread(self._thread.join)
        return 0

    def kill(self) -> None:
        self._end.shutdown(socket.SHUT_RDWR)


async def begin_here(order: Order, step_every_s: float = STEP_EVERY_S) -> ChildProcess:
    ours, childs = socket.socketpair()
    return await ChildProcess.send_order(ThreadAsProcess(childs, step_every_s), await Pipe.open(ours), order)
