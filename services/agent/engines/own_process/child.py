"""The child: takes what its parent asks, generates a step, answers, and so on; one thread, nothing beside the model.

`python -m services.agent.engines.own_process.child <file descriptor>`; everything else comes over that socket. It ends
the moment its parent closes the socket or is gone, also in the middle of a step.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ratchet.models.batcher import WaitingLine
from ratchet.service.errors import EngineError, RatchetError
from services.agent.engines.engine import (
    BatchEngine,
    Continuous,
    Generation,
    GenerationRequest,
    IdsRequest,
    TakesIds,
    TokenPiece,
)
from services.agent.engines.own_process.calls import (
    CANCEL,
    GENERATE,
    GENERATE_IDS,
    LOAD_ADAPTER,
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

STEP_EVERY_S = 1.0


class ParentGone(Exception):
    """The other end of the socket is closed."""


class Parent:
    """The other end of a blocking socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._frames = Frames()

    def send(self, item: Any) -> None:
        """Raises ParentGone, and what pickle raises."""
        frame = encode_frame(item)
        try:
            self._end.sendall(frame)
        except OSError as error:
            raise ParentGone from error

    def receive(self, *, wait: bool) -> Iterator[Any]:
        """Yield what the parent sent since; with `wait`, at least a part of something. Raises ParentGone."""
        try:
            piece = self._end.recv(READ_BYTES, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            raise ParentGone from error
        if not piece:
            raise ParentGone
        yield from self._frames.take(piece)


@dataclass(frozen=True, slots=True)
class Waiting:
    number: int
    request: GenerationRequest


class WaitingRequests:
    """Requests that the child has not begun, until they are taken or taken back: by priority, then in order."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._line: WaitingLine[Waiting] = WaitingLine(lambda one: one.number not in self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, number: int, request: GenerationRequest) -> None:
        self._numbers.add(number)
        self._line.add(Waiting(number, request), request.sampling.n, request.priority)

    def drop(self, number: int) -> None:
        """Taken back; one that is not waiting any more is no error."""
        self._numbers.discard(number)

    def batch(self, max_samples: int) -> list[Waiting]:
        """The next requests, with at most so many samples together; a single larger request is a batch of its own."""
        taken = self._line.batch(max_samples)
        self._numbers.difference_update(one.number for one in taken)
        return taken


class BatchAfterBatch:
    """A BatchEngine as a Continuous one: a step is a batch."""

    rows = 0

    def __init__(self, engine: BatchEngine, max_batch: int) -> None:
        self._engine = engine
        self._max_batch = max_batch
        self._waiting = WaitingRequests()

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def submit(self, number: int, request: GenerationRequest) -> None:
        self._waiting.add(number, request)

    def cancel(self, number: int) -> None:
        self._waiting.drop(number)

    def step(self) -> Sequence[tuple[int, Generation | RatchetError]]:
        batch = self._waiting.batch(self._max_batch)
        self.rows = sum(one.request.sampling.n for one in batch)
        return list(zip((one.number for one in batch), self._results(batch), strict=True)) if batch else []

    def _results(self, batch: Sequence[Waiting]) -> Sequence[Generation | RatchetError]:
        """One a request; where the batch as a whole fails, each is tried alone, so that only the guilty one fails."""
        try:
            return self._generate([one.request for one in batch])
        except Exception as error:
            if len(batch) == 1:
                return [portable(error)]
        return [self._results([one])[0] for one in batch]

    def _generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        results = self._engine.generate(requests)
        if len(results) != len(requests):
            raise EngineError(f"the engine gave {len(results)} answers to {len(requests)} requests: mend the engine")
        return results


class Child:
    """Answers until the parent is gone. `engine` is started."""

    def __init__(self, parent: Parent, engine: BatchEngine, max_batch: int, step_every_s: float = STEP_EVERY_S) -> None:
        self._parent = parent
        self._engine = engine
        self._continuous = engine if isinstance(engine, Continuous) else BatchAfterBatch(engine, max_batch)
        self._step_every_s = step_every_s
        self._stepped_at = time.monotonic()
        self._told: list[tuple[int, TokenPiece]] = []
        if hasattr(engine, "on_step"):
            engine.on_step = self._step

    def run(self) -> None:
        """Raises ParentGone."""
        while True:
            for call in self._parent.receive(wait=not self._continuous.busy):
                self._take(call)
            if not self._continuous.busy:
                continue
            rows = self._continuous.rows
            answers = [Answer(number, portable_result(result)) for number, result in self._continuous.step()]
            if self._told:
                self._parent.send(Told(tuple(self._told)))
                self._told.clear()
            if answers:
                self._parent.send(Batch(max(rows, self._continuous.rows), tuple(answers)))

    def _step(self) -> None:
        if time.monotonic() - self._stepped_at >= self._step_every_s:
            self._stepped_at = time.monotonic()
            self._parent.send(Step())

    def _take(self, call: Call) -> None:
        if call.method == GENERATE:
            self._continuous.submit(call.number, *call.arguments)
        elif call.method == GENERATE_IDS:
            self._submit_ids(call.number, *call.arguments)
        elif call.method == CANCEL:
            self._continuous.cancel(call.number)
        else:
            self._parent.send(Answer(call.number, self._change_adapter(call)))

    def _submit_ids(self, number: int, request: IdsRequest) -> None:
        if isinstance(self._engine, TakesIds):
            self._engine.submit_ids(number, request, partial(self._tell, number))
        else:
            self._parent.send(Answer(number, EngineError("this engine takes no token ids: ask it with a prompt")))

    def _tell(self, number: int, sample: int, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        self._told.append((number, TokenPiece(sample, tuple(ids), tuple(logprobs))))

    def _change_adapter(self, call: Call) -> RatchetError | None:
        change = self._engine.load_adapter if call.method == LOAD_ADAPTER else self._engine.unload_adapter
        try:
            change(*call.arguments)
        except Exception as error:
            return portable(error)
        return None


def portable_result(result: Generation | Exception) -> Generation | RatchetError:
    """Return the result in the form that travels to the parent."""
    return portable(result) if isinstance(result, Exception) else result


def portable(error: Exception) -> RatchetError:
    """Our own errors are sentences and travel; of others, and of what caused them, only the words do.

    An error derived from ours, which the parent may not be able to make again, travels as that of ours.
    """
    for kind in type(error).__mro__:
        if issubclass(kind, RatchetError) and kind.__module__ == RatchetError.__module__:
            return kind(str(error))
    return EngineError(f"the engine failed: {error!r}")


def serve(end: socket.socket, step_every_s: float = STEP_EVERY_S) -> None:
    """Returns when the parent is gone."""
    parent = Parent(end)
    try:
        (order,) = first_order(parent)
        try:
            engine = order.make()
            engine.start()
        except Exception as error:
            parent.send(portable(error))
            return
        context = engine.context if isinstance(engine, TakesIds) else None
        parent.send(Started(engine.identity, engine.base, getattr(engine, "remarks", ()), context))
        Child(parent, engine, order.max_batch, step_every_s).run()
    except ParentGone:
        return


def first_order(parent: Parent) -> list[Order]:
    orders: list[Order] = []
    while not orders:
        orders.extend(parent.receive(wait=True))
    return orders


def end_with(end: socket.socket) -> None:
    """Waits, beside whatever goes on, until the other end is closed; then there is nobody to work for."""
    poll = select.poll()
    poll.register(end, 0)
    poll.poll()
    os._exit(0)


def main() -> None:
    """A signal to the whole group is the parent's to answer: it finishes what is in hand, then closes the socket."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    end = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=end_with, args=(end,), daemon=True).start()
    try:
        serve(end)
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # no thread that the model left behind may hold up the end: the parent waits for it
    os._exit(0)


if __name__ == "__main__":
    main()
