"""The recipe of the tool model. Pure: numbers only; pretraining.py follows them."""

from __future__ import annotations

from dataclasses import dataclass

from demos.toy.recipe import Network


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
    """And its demonstrations: how careful their teacher is, after `careful_steps` in which it makes no mistake.

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
    steps=900,
    batch=32,
    learning_rate=4e-3,
    care=Care(),
    careful_steps=600,
)
