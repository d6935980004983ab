"""What changed in one module of the base model between two adapters, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModuleChange:
    """Frobenius norms of the update before, after, and of the difference; cosine between them, None if one is zero."""

    module: str
    norm_before: float
    norm_after: float
    norm_change: float
    cosine: float | None
