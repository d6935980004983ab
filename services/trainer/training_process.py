"""The process that trains, as the service sees it: started once, given runs, followed, replaced if it dies.

It is a process of its own so that a crash of torch is an outcome and not the service's death, and stays up between runs
because importing torch and TRL takes seconds. It ends when its stdin does, so it never outlives the service.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ratchet.service.errors import TrainingError
from ratchet.service.telemetry import Log

log = Log("trainer")

SERVE = (sys.executable, "-m", "services.trainer.train", "--serve")
LAST_LINES = 12
STOP_WAIT_S = 10.0

OnEvent = Callable[[Mapping[str, Any]], None]


class ProcessDied(TrainingError):
    """It ended before its run did."""


class TrainingProcess:
    """One run at a time. `command` speaks the protocol of services/trainer/train.py --serve."""

    def __init__(self, on_event: OnEvent, command: Sequence[str] = SERVE) -> None:
        self._on_event = on_event
        self._command = tuple(command)
        self._process: asyncio.subprocess.Process | None = None
        self._stderr: asyncio.Task[None] | None = None
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def _running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Returns at once; what it has to import it imports meanwhile."""
        if self._running:
            return
        self._last_lines.clear()
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C in the terminal is for the service: it ends this process in order
        )
        self._stderr = asyncio.create_task(self._listen_to_stderr(self._process))

    async def run(self, folder: Path) -> bool:
        """False if another trainer is at it. Raises ProcessDied, with the last it said."""
        await self.start()
        assert self._process is not None and self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(f"{folder.absolute()}\n".encode())
            await self._process.stdin.drain()
        while (event := await self._next()) is not None:
            if event.get("run") == str(folder.absolute()):
                return bool(event["stage"] == "done")
            self._on_event(event)
        raise ProcessDied(f"the training process ended ({await self._how_it_ended()}): {self._last_words()}")

    async def stop(self) -> None:
        """End it, in the middle of a run too; the run is taken up where its last checkpoint is."""
        if self._process is None:
            return
        if self._running:
            with suppress(ProcessLookupError):
                self._process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_WAIT_S):
                await self._process.wait()
        if self._running:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._stderr is not None:
            self._stderr.cancel()
            with suppress(asyncio.CancelledError):
                await self._stderr

    async def _next(self) -> Mapping[str, Any] | None:
        """Its next event; None when it has ended."""
        assert self._process is not None and self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            return None
        event: Mapping[str, Any] = json.loads(line)
        return event

    async def _listen_to_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            text = line.decode(errors="replace").rstrip()
            self._last_lines.append(text)
            log.debug("training-process", text)

    async def _how_it_ended(self) -> str:
        assert self._process is not None
        code = await self._process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _last_words(self) -> str:
        return " / ".join(line for line in self._last_lines if line) or "it said nothing"
