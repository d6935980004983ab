"""Recipes of the two models that need no download. Pure: numbers only; pretraining.py follows them.

`small` is mediocre on purpose: its demonstrator is careless, so there is something to learn from traffic. `judge` is
bigger and saw only right answers. Both have attention heads of 32, the smallest size vLLM takes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import ClassVar

FORMAT = 1
"""Raise it when pretraining or the tokenizer change what a recipe gives."""


@dataclass(frozen=True, slots=True)
class Network:
    """A Llama by its sizes, and how long it is trained on demonstrations, by the module PRETRAINING names."""

    PRETRAINING: ClassVar[str]

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    steps: int
    batch: int
    learning_rate: float

    def sha256(self, seed: int) -> str:
        """Two recipes with the same sum give the same model."""
        content = {"format": FORMAT, "seed": seed} | asdict(self)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Recipe(Network):
    """A network and its demonstrations: shares that are right, that swap the last two letters, else any two."""

    PRETRAINING = "demos.toy.pretraining"

    right_share: float
    last_two_swapped_share: float = 0.0


SMALL = Recipe(
    name="small",
    hidden=96,
    intermediate=192,
    layers=2,
    heads=3,
    steps=450,
    batch=64,
    learning_rate=3e-3,
    right_share=0.32,
    last_two_swapped_share=0.55,
)
JUDGE = Recipe(
    name="judge",
    hidden=160,
    intermediate=256,
    layers=3,
    heads=5,
    steps=400,
    batch=64,
    learning_rate=3e-3,
    right_share=1.0,
)


@dataclass(frozen=True, slots=True)
class Care:
    """The shares in which the teacher reads a needed file, follows a pointer, adds with the tool, and writes where
    asked."""

    reads: float = 0.95
    follows: float = 0.45
    adds: float = 0.65
    right_file: float = 0.8


FLAWLESS = Care(1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class ToolRecipe(Network):
    """A network and its demonstrations: the care of their teacher, after `careful_steps` without a mistake.

    Those teach how each thing is done, with nothing in them that can't be foreseen; the others how seldom.
    """

    PRETRAINING = "demos.toy.tools.pretraining"

    care: Care
    careful_steps: int = 0


TOOL_USER = ToolRecipe(
    name="tool-user",
    hidden=96,
    intermediate=192,
    layers=2,
    heads=3,
    steps=700,
    batch=16,
    learning_rate=4e-3,
    care=Care(),
    careful_steps=450,
)
