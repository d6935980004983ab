"""Scoring functions as users write them, good and bad."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from decimal import Decimal
from typing import Any

release = threading.Event()
calls: list[tuple[Any, ...]] = []

not_a_function = 3


def length(prompt: Any, answer: str, reference: str | None, criteria: str | None) -> float:
    calls.append((prompt, answer, reference, criteria))
    return len(answer) / 10


async def length_async(prompt: Any, answer: str, reference: str | None, criteria: str | None) -> float:
    await asyncio.sleep(0)
    return len(answer) / 10


def no_opinion(*_: Any) -> None:
    return None


def raises(*_: Any) -> float:
    raise KeyError("oops")


async def raises_async(*_: Any) -> float:
    raise KeyError("oops")


def raises_timeout(*_: Any) -> float:
    raise TimeoutError("its own")


async def raises_timeout_async(*_: Any) -> float:
    raise TimeoutError("its own")


def stops_iterating(*_: Any) -> float:
    raise StopIteration


def exits(*_: Any) -> float:
    sys.exit(3)


def not_a_number(*_: Any) -> float:
    return float("nan")


def too_large(*_: Any) -> float:
    return 1.5


def text(*_: Any) -> str:
    return "0.5"


def decimal(*_: Any) -> Decimal:
    return Decimal("0.5")


def truth(*_: Any) -> bool:
    return True


def hangs(*_: Any) -> float:
    release.wait(20)
    return 0.5


async def hangs_async(*_: Any) -> float:
    await asyncio.Event().wait()
    return 0.5


def slow(*asked: Any) -> float:
    calls.append(asked)
    time.sleep(0.05)  # real time: it takes longer than others
    return 0.5
