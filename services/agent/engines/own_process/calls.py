"""What a parent and its child say to each other. In a module of its own: a class of `__main__` can't be unpickled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schemas.messages.base import BaseModelIdentity
from services.agent.engines.engine import BatchEngine

GENERATE = "generate"
LOAD_ADAPTER = "load_adapter"
UNLOAD_ADAPTER = "unload_adapter"
CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Order:
    """The first thing a child is told: what makes its engine, and how many samples to generate at once."""

    make: Callable[[], BatchEngine]
    max_batch: int


@dataclass(frozen=True, slots=True)
class Started:
    """The first thing a child says, unless it is the error why it can't."""

    identity: str
    base: BaseModelIdentity | None


@dataclass(frozen=True, slots=True)
class Call:
    """`number` is the caller's. CANCEL has the number of the request it takes back, and no answer."""

    number: int
    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """`result` is the error if it failed."""

    number: int
    result: Any


@dataclass(frozen=True, slots=True)
class Step:
    """A batch is being generated, and has got on. At most one a second."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The answers of one batch, and how many samples were generated at once for it."""

    samples: int
    answers: tuple[Answer, ...]
