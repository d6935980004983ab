"""The cells that are run, and the methods that are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Method:
    """`algorithm` is empty for the base model, which is not trained. `takes_samples`: it learns from the groups."""

    algorithm: str
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    takes_samples: bool = True


METHODS = {
    "base": Method("", takes_samples=False),
    "references": Method("grpo", {"demonstrations": ["reference"]}, takes_samples=False),
    "references-then-grpo": Method("grpo", {"demonstrations": ["reference"], "mixture": "first"}),
    "grpo": Method("grpo", {"demonstrations": []}),
    "best-of-group-sft": Method("best-of-group-sft", {"demonstrations": []}),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """`wrong`: percent of the references that are another task's."""

    family: str
    size: int
    wrong: int
    seed: int
    method: str

    @property
    def name(self) -> str:
        return f"{self.family}-{self.size}-wrong{self.wrong}-seed{self.seed}-{self.method}"
