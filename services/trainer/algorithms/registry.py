"""Algorithms by name, from the entry points of installed packages. Nothing heavy is imported but the one asked for."""

from __future__ import annotations

from importlib.metadata import entry_points

from ratchet.service.errors import TrainingRefused
from services.trainer.algorithms.algorithm import Algorithm

GROUP = "ratchet.algorithms"


def find_algorithm(name: str) -> Algorithm:
    """Raises TrainingRefused if there is none of that name, or it can't be loaded."""
    found = entry_points(group=GROUP)
    if name not in found.names:
        raise TrainingRefused(f"there is no algorithm {name!r}; installed are {', '.join(sorted(found.names))}")
    try:
        algorithm: Algorithm = found[name].load()()
    except (ImportError, AttributeError) as error:
        raise TrainingRefused(
            f"algorithm {name!r} can't be loaded ({error}): pip install 'ratchet[trainer]'"
        ) from error
    return algorithm
