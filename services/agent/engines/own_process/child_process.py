"""The parent's hold on a child: begins it, calls it, takes its answers, knows why it ended, ends it."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator
from itertools import count
from typing import Any, Protocol, Self

from ratchet.service.errors import EngineError, RatchetError
from services.agent import metrics
from services.agent.engines.engine import Generation, IdsRequest, TokenPiece
from services.agent.engines.own_process.calls import (
    CANCEL,
    GENERATE_IDS,
    READ_BYTES,
    Answer,
    Batch,
    Call,
    Frames,
    Order,
    Started,
    Step,
    Told,
    encode_frame,
)


class Pipe:
    """The parent's end of the socket pair: what is sent in one turn of the loop leaves together. For one reader."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._outgoing: list[bytes] = []
        self._frames = Frames()
        self._received: deque[Any] = deque()

    @classmethod
    async def open(cls, end: socket.socket) -> Self:
        """The pipe owns the socket from now on."""
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, item: Any) -> None:
        """Raises what pickle raises. To an end that is closed it goes nowhere: `receive` tells of that."""
        frame = encode_frame(item)
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(frame)

    def _flush(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(b"".join(self._outgoing))
        self._outgoing.clear()

    async def receive(self) -> Any:
        """The next object, in the order they were sent. Raises EOFError once the other end is closed."""
        while not self._received:
            try:
                piece = await self._reader.read(READ_BYTES)
            except OSError as error:
                raise EOFError from error
            if not piece:
                raise EOFError
            self._received.extend(self._frames.take(piece))
        return self._received.popleft()

    def close(self) -> None:
        """Close at once: what has not left yet is dropped, even if the other end is busy for long."""
        self._writer.transport.abort()


END_S = 5.0
"""Seconds it has to end by itself once its pipe is closed."""


class Process(Protocol):
    """The part of asyncio's Process that is used."""

    pid: int

    async def wait(self) -> int: ...

    def kill(self) -> None: ...


class ChildProcess:
    """One that has its model; `begin` makes it."""

    def __init__(self, process: Process, pipe: Pipe, started: Started) -> None:
        self.started = started
        self.advanced_at = time.monotonic()
        """When it last said anything."""
        self._process = process
        self._pipe = pipe
        self._numbers = count(1)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._streams: dict[int, asyncio.Queue[TokenPiece | None]] = {}
        self._life = asyncio.create_task(self._live())

    @classmethod
    async def begin(cls, order: Order) -> Self:
        """Returns when the model is loaded. Raises the child's reason why it can't be, or EngineError if it died."""
        try:
            process, pipe = await _process_and_pipe()
        except OSError as error:
            raise EngineError(f"the engine's process can't be started: {error}") from error
        child = await cls.send_order(process, pipe, order)
        metrics.EngineProcessId.value = process.pid
        return child

    @classmethod
    async def send_order(cls, process: Process, pipe: Pipe, order: Order) -> Self:
        """One that was begun, once its model is loaded; it ends if that fails."""
        try:
            pipe.send(order)
            answer: Started | RatchetError = await pipe.receive()
            if isinstance(answer, RatchetError):
                raise answer
        except EOFError:
            pipe.close()
            raise EngineError(await _why_it_ended(process)) from None
        except BaseException:
            await _end(process, pipe)
            raise
        return cls(process, pipe, answer)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(self, method: str, *arguments: Any) -> Any:
        """Raises the child's error, or EngineError if it ends first. Cancelled, the child forgets it too."""
        call = Call(next(self._numbers), method, arguments)
        answer = self._calls[call.number] = asyncio.get_running_loop().create_future()
        try:
            if self._life.done():
                raise EngineError("the engine's process has ended")
            self._pipe.send(call)
            return await answer
        except asyncio.CancelledError:
            self._pipe.send(Call(call.number, CANCEL))
            raise
        finally:
            del self._calls[call.number]

    async def stream_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
        """The pieces as they come, the last of each sample with its reason. Closed early, the child forgets it."""
        number = next(self._numbers)
        answer = self._calls[number] = asyncio.get_running_loop().create_future()
        pieces = self._streams[number] = asyncio.Queue()
        answer.add_done_callback(lambda _: pieces.put_nowait(None))
        told: Counter[int] = Counter()
        try:
            self._pipe.send(Call(number, GENERATE_IDS, (request,)))
            while (piece := await pieces.get()) is not None:
                told[piece.sample] += len(piece.ids)
                yield piece
            generation: Generation = answer.result()
            for sample, whole in enumerate(generation.samples):
                rest = slice(told[sample], None)
                ids, logprobs = (whole.completion_ids or ())[rest], (whole.logprobs or ())[rest]
                yield TokenPiece(sample, ids, logprobs, whole.finish_reason)
        finally:
            if not answer.done():
                self._pipe.send(Call(number, CANCEL))
            del self._calls[number], self._streams[number]

    async def wait_end(self) -> str:
        """Return why the process ended by itself; every call has failed with that."""
        return await asyncio.shield(self._life)

    async def end(self) -> None:
        self._fail_calls("the agent is stopping")
        await _end(self._process, self._pipe)
        await self._life

    async def _live(self) -> str:
        """Take its answers until it ends; then no call waits any more."""
        fault = await self._receive_all()
        if fault is not None:
            self._process.kill()
        why = await _why_it_ended(self._process)
        self._fail_calls(fault or why)
        self._pipe.close()
        return fault or why

    async def _receive_all(self) -> str | None:
        """Take what the child sends until it ends. Return why it can't be understood, which ends reading, else None."""
        try:
            while True:
                self._take(await self._pipe.receive())
        except EOFError:
            return None
        except Exception as error:
            return f"the engine's process can't be understood ({error!r})"

    def _take(self, said: Answer | Batch | Step | Told) -> None:
        self.advanced_at = time.monotonic()
        if isinstance(said, Step):
            return
        if isinstance(said, Answer):
            self._settle(said)
            return
        if isinstance(said, Told):
            for number, piece in said.pieces:
                if number in self._streams:
                    self._streams[number].put_nowait(piece)
            return
        metrics.batch_samples.observe(said.samples)
        for answer in said.answers:
            self._settle(answer)

    def _settle(self, said: Answer) -> None:
        answer = self._calls.get(said.number)
        if answer is None or answer.done():
            return
        if isinstance(said.result, Exception):
            answer.set_exception(said.result)
        else:
            answer.set_result(said.result)

    def _fail_calls(self, why: str) -> None:
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(EngineError(why))


async def _process_and_pipe() -> tuple[Process, Pipe]:
    """Raises OSError where there is no room for them. A process whose pipe is closed ends."""
    ours, childs = socket.socketpair()
    try:
        with childs:
            command = (sys.executable, "-m", "services.agent.engines.own_process.child", str(childs.fileno()))
            process = await asyncio.create_subprocess_exec(*command, pass_fds=(childs.fileno(),))
        return process, await Pipe.open(ours)
    except BaseException:
        ours.close()
        raise


async def _end(process: Process, pipe: Pipe) -> None:
    pipe.close()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _why_it_ended(process: Process) -> str:
    code = await process.wait()
    if code == -signal.SIGKILL:
        return "the engine's process was killed (signal 9): was it out of memory? Lower RATCHET_AGENT_MAX_BATCH"
    if code < 0:
        return f"the engine's process was killed (signal {-code}, {signal.Signals(-code).name}): see its output above"
    return f"the engine's process ended (exit code {code}): see its output above"
