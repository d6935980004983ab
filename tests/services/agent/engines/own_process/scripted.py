"""An engine for a child of the tests: answers with its batch, slowly; loads what it is told to; dies when asked to."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ratchet.service.errors import AdapterError, EngineError, PromptTooLong
from schemas.messages.response import Sample
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.settings import AgentSettings
from tests.waiting import wait_until

DIE = "die"
LONG = "long"
ODD = "odd"
OWN_ERROR = "own error"
EXIT = "exit"
SLOWLY, SLOWLY_DONE = "slowly", threading.Event()
"""A prompt that makes a batch take steps until the event is set, where the child is a thread of the test."""
BEGUN, GO = "begun", "go"
"""Files of an engine that is held: one is made when a batch begins, the batch waits for the other."""
DEADLY, SLOW, LOADING = "deadly", "slow", "loading"
"""Files in an adapter's folder: loading it kills the child, takes a while, or has begun."""


class OwnError(EngineError):
    """An error of a foreign engine, with more arguments."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: code {code}")


class ScriptedEngine:
    """An engine whose samples are the prompts of their batch, and the adapter."""

    identity = "scripted"
    base = None

    def __init__(self, held: Path | None = None) -> None:
        self._held = held
        self._adapters: set[str] = set()
        self.on_step: Callable[[], None] = lambda: None

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Self:
        return cls()

    def start(self) -> None:
        pass

    def load_adapter(self, name: str, path: Path) -> None:
        if (path / DEADLY).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        if (path / SLOW).exists():
            (path / LOADING).touch()
            time.sleep(0.5)  # real time: what comes meanwhile waits in a socket
        if not path.is_dir():
            raise AdapterError(f"no adapter folder {path}")
        self._adapters.add(name)

    def unload_adapter(self, name: str) -> None:
        self._adapters.discard(name)

    def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        while requests[0].prompt == SLOWLY and not SLOWLY_DONE.wait(0.001):
            self.on_step()
        if self._held is not None:
            (self._held / BEGUN).touch()
            wait_until((self._held / GO).exists, timeout_s=60.0)
        batch = " ".join(str(request.prompt) for request in requests)
        return [self._answered(request, batch) for request in requests]

    def _answered(self, request: GenerationRequest, batch: str) -> Generation | EngineError:
        if request.prompt == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        if request.prompt == LONG:
            return PromptTooLong("too long by 7 tokens")
        if request.prompt == ODD:
            raise ZeroDivisionError("odd")
        if request.prompt == OWN_ERROR:
            return OwnError("a device is lost", 7)
        if request.prompt == EXIT:
            threading.Thread(target=time.sleep, args=(60,)).start()
            raise SystemExit(3)
        if request.adapter is not None and request.adapter not in self._adapters:
            return EngineError(f"no adapter {request.adapter!r}")
        return Generation((Sample(text=f"{batch} {request.adapter or ''}".strip()),) * request.sampling.n)


class MeetingEngine(ScriptedEngine):
    """Takes requests while it generates: it answers once it has three, without those that were given up."""

    rows = 3

    def __init__(self) -> None:
        super().__init__()
        self._in_hand: dict[int, GenerationRequest] = {}

    @property
    def busy(self) -> bool:
        return bool(self._in_hand)

    def submit(self, number: int, request: GenerationRequest) -> None:
        self._in_hand[number] = request

    def cancel(self, number: int) -> None:
        self._in_hand.pop(number, None)

    def step(self) -> Sequence[tuple[int, Generation | EngineError]]:
        self.on_step()
        if len(self._in_hand) < self.rows:
            return []
        requests, self._in_hand = self._in_hand, {}
        return list(zip(requests, self.generate(list(requests.values())), strict=True))


@dataclass(frozen=True)
class NoModel:
    """A factory whose engine can't start."""

    why: str

    def __call__(self) -> ScriptedEngine:
        raise EngineError(self.why)


def broken() -> ScriptedEngine:
    raise ZeroDivisionError("broken")


def deadly() -> ScriptedEngine:
    os._exit(7)
