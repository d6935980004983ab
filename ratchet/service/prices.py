"""The cost of tasks, in whole micro-units of the currency of one file of prices. Pure, but for reading the file.

A price of 0.60 for a million tokens is 0.6 micro-units a token. A task costs its tokens at the prices that held when it
was released, rounded up, and never more than what was reserved for it then.
"""

from __future__ import annotations

import tomllib
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from ratchet.service.errors import SettingsError
from schemas.messages.base import AgentId, Record, explain
from schemas.messages.result import TaskUsage
from schemas.messages.task import Task
from schemas.messages.training import TrainRequest

MICRO = 1_000_000
LARGEST = 10**15
"""The most micro-units that a task is said to cost: sums of it fit the 64 bits of the database."""
PerMillion = Annotated[Decimal, Field(ge=0, max_digits=15, decimal_places=6)]


class AgentPrices(Record):
    """Prices for a million tokens. A task that does not say how much it may take gets these bounds."""

    prompt: PerMillion
    sampled: PerMillion
    samples: int = Field(ge=1, le=64)
    max_tokens: int = Field(ge=1)
    training: PerMillion = Decimal(0)
    """The price of a training run that makes a version."""
    max_prompt_tokens: int | None = Field(None, ge=1)
    """The most prompt tokens of a task whose program calls the model often; other prompts have at most one per byte."""
    calls: int | None = Field(None, ge=1)
    """The most calls of the model for one sample, where a program makes them."""
    tokens: int | None = Field(None, ge=1)
    """The most tokens that are sampled in these calls."""

    def of(self, usage: TaskUsage) -> Decimal:
        """Return the exact price, in micro-units."""
        return usage.prompt_tokens * self.prompt + usage.sampled_tokens * self.sampled


class Prices(Record):
    currency: str = Field(min_length=1, max_length=10)
    agents: dict[AgentId, AgentPrices]

    @classmethod
    def parse(cls, toml: str) -> Prices:
        """Raises ValueError."""
        return cls.model_validate(tomllib.loads(toml, parse_float=Decimal))

    @classmethod
    def read(cls, path: Path) -> Prices:
        """Raises SettingsError."""
        try:
            return cls.parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            why = explain("file of prices", error) if isinstance(error, ValidationError) else str(error)
            raise SettingsError(f"RATCHET_PRICES: {path} can't be used: {why}") from None


def with_limits(task: Task, prices: AgentPrices) -> Task:
    """Return the task with a bound on all that it costs."""
    wanted = {"samples": task.samples or prices.samples, "max_tokens": task.max_tokens or prices.max_tokens}
    return task.model_copy(update=wanted)


def most_tokens(task: Task, prices: AgentPrices) -> TaskUsage:
    """Return the most that a task of these bounds can take: no token of a prompt has less than a byte."""
    samples, max_tokens = task.samples or prices.samples, task.max_tokens or prices.max_tokens
    prompt = prices.max_prompt_tokens or len(task.encode()) * (samples * prices.calls if prices.calls else 1)
    in_calls = max_tokens * (prices.calls or 1)
    return TaskUsage(prompt_tokens=prompt, sampled_tokens=samples * min(in_calls, prices.tokens or in_calls))


def most_cost(asked: Task | TrainRequest, prices: AgentPrices) -> int:
    """Return the most micro-units that a task of these bounds can cost, or what a training run costs."""
    return micros(prices.training) if isinstance(asked, TrainRequest) else cost(most_tokens(asked, prices), prices)


def cost(usage: TaskUsage, prices: AgentPrices) -> int:
    return min(LARGEST, int(prices.of(usage).to_integral_value(ROUND_CEILING)))


def micros(amount: Decimal) -> int:
    """Return the whole micro-units of an amount, which has at most six decimal places."""
    return int(amount * MICRO)


def units(amount: int) -> Decimal:
    return (Decimal(amount) / MICRO).quantize(Decimal("0.000001"))
