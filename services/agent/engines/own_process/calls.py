"""What a parent and its child say to each other. Of a module of its own: a class of `__main__` can't be unpickled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schemas.adapter_card import BaseModelIdentity
from services.agent.engines.engine import Engine

CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Order:
    """The first thing a child is told: what makes its engine, and how many samples to generate at once."""

    make: Callable[[], Engine]
    max_batch: int


@dataclass(frozen=True, slots=True)
class Started:
    """The first thing a child says, unless it is the error why it can't."""

    identity: str
    base: BaseModelIdentity | None


@dataclass(frozen=True, slots=True)
class Call:
    """`number` is the caller's; a call of CANCEL has that of the call it ends, and no answer."""

    number: int
    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """`result` is the error if it failed."""

    number: int
    result: Any


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch begins."""

    samples: int
