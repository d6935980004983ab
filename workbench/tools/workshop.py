"""The equipment of the operations: the workspace, the policy, a sandbox, and what one call leaves for a later one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from workbench.sandbox.job import Job, Result, SandboxError
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.settings import SandboxSettings
from workbench.tools.operation import ToolError
from workbench.tools.policy import Policy
from workbench.tools.surrounding import Surrounding
from workbench.tools.tree import CHANGE, Change, Tree

T = TypeVar("T")


class Runs(Protocol):
    """A sandbox, opened."""

    async def run(self, job: Job) -> Result: ...


Resolve = Callable[[str, int], Awaitable[list[str]]]
"""A function from host and port to addresses, as the machine's resolver has them."""


async def resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)
    return [str(address[0]) for _, _, _, _, address in found]


@dataclass(slots=True)
class Workshop:
    """`writing` is held by calls that change the workspace, one at a time."""

    tree: Tree
    policy: Policy
    sandbox: Runs | None = None
    """Opened, which attacks it first, when it is needed, unless one is given."""
    resolve: Resolve = resolve
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    failed_tests: dict[str, list[str]] = field(default_factory=dict)
    """Tests that failed in the last run of each runner."""
    _opening: threading.Lock = field(default_factory=threading.Lock)

    async def change(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run it in a thread, as the only one that changes the workspace."""
        async with self.writing:
            return await self.finish(function, *arguments, **named)

    async def finish(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run it in a thread that is waited for to its end: until then its caller holds `writing`.

        Cancelled before anything is written, it changes nothing. Once it has begun to write it can't be cancelled: its
        result is what came of it.
        """
        change = Change()

        def run() -> T:
            CHANGE.set(change)
            return function(*arguments, **named)

        work = asyncio.ensure_future(asyncio.to_thread(run))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            is_given_up = change.give_up()
            while not work.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({work})
            if is_given_up:
                work.exception()
                raise
            return work.result()

    async def look(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return await asyncio.to_thread(function, *arguments, **named)

    async def run(self, job: Job) -> Result:
        """Raises ToolError where this machine has no sandbox that holds."""
        try:
            return await (await asyncio.to_thread(self._open_sandbox)).run(job)
        except SandboxError as error:
            raise ToolError("ours", f"there is no sandbox for this: {error}") from None

    def _open_sandbox(self) -> Runs:
        with self._opening:
            if self.sandbox is None:
                is_around = self.policy.isolation == "around"
                self.sandbox = Surrounding() if is_around else Sandbox.open(SandboxSettings())
            return self.sandbox
