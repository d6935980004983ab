"""A child that is a thread of this process: the same calls over the same socket, without the seconds of a start."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

from services.agent.engines.own_process.calls import Order
from services.agent.engines.own_process.child import serve
from services.agent.engines.own_process.child_process import ChildProcess, Pipe


class ThreadAsProcess:
    def __init__(self, end: socket.socket) -> None:
        self.pid = os.getpid()
        self._end = end
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._end:
            serve(self._end)

    async def wait(self) -> int:
        await asyncio.to_thread(self._thread.join)
        return 0

    def kill(self) -> None:
        self._end.shutdown(socket.SHUT_RDWR)


async def begin_here(order: Order) -> ChildProcess:
    ours, childs = socket.socketpair()
    return await ChildProcess.ordered(ThreadAsProcess(childs), await Pipe.open(ours), order)
