"""Scores by a function of the user's own: `python:package.module:function`.

It is called as `function(prompt, answer, reference, criteria)`, once per answer, and gives a number from 0 to 1, or
None where it has no opinion. `prompt` is text, or a list of {"role", "content"}; `reference` and `criteria` may be
None. A plain function runs in a thread, an `async` one on the service's event loop, which it must not block. The
function is trusted: it is code of the fleet's owner, not of a task. A thread that overruns is abandoned, not ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from numbers import Real
from pathlib import Path
from typing import Any, Self

from ratchet.bus.in_hand import NEVER
from ratchet.service.errors import ScorerError
from schemas.messages.reward import SampleScore, ScorerIdentity
from schemas.messages.task import Prompt
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import ScoringRequest, failure, no_score, ran_out_of_time

Function = Callable[..., Any]


class PythonFunction:
    """At most `concurrency` calls run at once; one that overran keeps its place until it ends."""

    one_by_one = True

    def __init__(self, name: str, function: Function, *, timeout_s: float, concurrency: int) -> None:
        self._name = name
        self._function = function
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)
        self._concurrency = concurrency
        self._overrun: set[asyncio.Future[SampleScore]] = set()
        self._advanced_at = NEVER
        self._identity = ScorerIdentity(id=f"python:{name}", revision=source_sha256(function)[:12])

    @classmethod
    def build(cls, argument: str, settings: ScorerSettings) -> Self:
        return cls(
            argument,
            load_function(argument),
            timeout_s=settings.scorer_python_timeout_s,
            concurrency=settings.scorer_python_concurrency,
        )

    @property
    def identity(self) -> ScorerIdentity:
        """The revision is that of the function's source file; what it imports is not in it."""
        return self._identity

    @property
    def grades_references(self) -> bool:
        """The function says so, by an attribute of that name."""
        return bool(getattr(self._function, "grades_references", False))

    async def start(self) -> None:
        """The function is loaded already."""

    async def stop(self) -> None:
        """Threads are daemons: they do not hold up the end of the process."""

    def trouble(self) -> str | None:
        if len(self._overrun) < self._concurrency:
            return None
        return f"all {self._concurrency} calls of {self._name} have overrun and still hang: mend it and restart"

    def advanced_at(self) -> float:
        return self._advanced_at

    def _note_step(self) -> None:
        """A call ended, was abandoned, or began; the next one to end does so within its time."""
        self._advanced_at = time.monotonic() + self._timeout_s

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        prompt = _plain(request.prompt)
        calls = (
            self._call_with_limit(prompt, answer.text, request.reference, request.criteria)
            for answer in request.answers
        )
        return list(await asyncio.gather(*calls))

    async def _call_with_limit(self, *arguments: Any) -> SampleScore:
        if not await self._free_slot():
            return failure(1, str(self.trouble()))[0]
        self._note_step()
        scoring = (
            self._call_async(arguments) if inspect.iscoroutinefunction(self._function) else self._in_thread(arguments)
        )
        score = await scoring
        self._note_step()
        return score or ran_out_of_time(1, f"{self._name} took longer than {self._timeout_s:g} s")[0]

    async def _free_slot(self) -> bool:
        """Waits for as long as others make progress; False where every slot is held by a call that hangs."""
        while self.trouble() is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    return await self._slots.acquire()
        return False

    async def _call_async(self, arguments: Sequence[Any]) -> SampleScore | None:
        """None if it took too long."""
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                return as_score(self._name, await self._function(*arguments))
        except Exception as error:
            return None if limit.expired() else self._failure_of(error)
        finally:
            self._slots.release()

    async def _in_thread(self, arguments: Sequence[Any]) -> SampleScore | None:
        """None if it took too long; its thread is then left to itself."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[SampleScore] = loop.create_future()
        context = copy_context()

        def work() -> None:
            score = context.run(self._call, arguments)
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._finish_overrun, outcome, score)

        threading.Thread(target=work, name=self._name, daemon=True).start()
        try:
            await asyncio.wait((outcome,), timeout=self._timeout_s)
            if outcome.done():
                return outcome.result()
            self._overrun.add(outcome)
            return None
        finally:
            outcome.cancel()

    def _call(self, arguments: Sequence[Any]) -> SampleScore:
        try:
            return as_score(self._name, self._function(*arguments))
        except BaseException as error:
            return self._failure_of(error)

    def _failure_of(self, error: BaseException) -> SampleScore:
        return failure(1, f"{self._name} raised {error!r:.300}")[0]

    def _finish_overrun(self, outcome: asyncio.Future[SampleScore], score: SampleScore) -> None:
        self._slots.release()
        self._overrun.discard(outcome)
        if not outcome.cancelled():
            outcome.set_result(score)


def load_function(name: str) -> Function:
    """Raises ScorerError where `package.module:function` can't be imported or is no function."""
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute):
        raise ScorerError(f"python:{name} names no function: write python:package.module:function")
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:
        raise ScorerError(
            f"python:{name} can't be imported ({error!r}): is it installed, or in this folder?"
        ) from error
    if not callable(function):
        raise ScorerError(f"python:{name} is a {type(function).__name__}, not a function")
    loaded: Function = function
    return loaded


def source_sha256(function: Function) -> str:
    """Hash the file that defines it; its name where there is no file to read."""
    try:
        return hashlib.sha256(Path(inspect.getfile(inspect.unwrap(function))).read_bytes()).hexdigest()
    except (TypeError, OSError):
        return hashlib.sha256(repr(function).encode()).hexdigest()


def as_score(name: str, value: Any) -> SampleScore:
    """None is unscorable; what is no number in [0, 1] is a fault of the function."""
    if value is None:
        return no_score(1, f"{name} gave no score")[0]
    if not isinstance(value, Real) or not 0.0 <= float(value) <= 1.0:
        return failure(1, f"{name} gave {value!r:.100}, which is no number from 0 to 1")[0]
    return SampleScore(score=float(value))


def _plain(prompt: Prompt) -> str | list[dict[str, Any]]:
    if isinstance(prompt, str):
        return prompt
    return [message.model_dump() for message in prompt]
