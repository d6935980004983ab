"""A child that is a task of this event loop: the same calls over the same pipe, without the seconds a process takes."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress

from services.agent.engines.own_process.calls import Order
from services.agent.engines.own_process.child import serve
from services.agent.engines.own_process.child_process import ChildProcess
from services.agent.engines.own_process.pipe import Pipe


class TaskAsProcess:
    def __init__(self, task: asyncio.Task[None]) -> None:
        self.pid = os.getpid()
        self._task = task

    async def wait(self) -> int:
        with suppress(EOFError, asyncio.CancelledError):
            await self._task
        return 0

    def kill(self) -> None:
        self._task.cancel()


async def begin_here(order: Order) -> ChildProcess:
    ours, childs = socket.socketpair()
    task = asyncio.create_task(serve(childs))
    return await ChildProcess.ordered(TaskAsProcess(task), await Pipe.open(ours), order)
