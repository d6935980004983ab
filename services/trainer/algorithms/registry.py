"""Algorithms by name, from the entry points of installed packages. Nothing heavy is imported but the one asked for."""

from __future__ import annotations

from ratchet.service.entry_points import EntryPoints
from ratchet.service.errors import TrainingRefused
from services.trainer.algorithms.algorithm import Algorithm

ALGORITHMS = EntryPoints("ratchet.algorithms", "algorithm", TrainingRefused, "trainer")


def find_algorithm(name: str) -> Algorithm:
    """Raises TrainingRefused if there is none of that name, or it can't be loaded."""
    algorithm: Algorithm = ALGORITHMS.load(name)()
    return algorithm
