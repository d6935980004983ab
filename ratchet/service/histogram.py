"""Quantiles of a histogram's buckets. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(q: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """Of cumulative (upper bound, count) buckets, linear within a bucket, as Prometheus does it.

    None without observations; the last finite bound where it lies above it.
    """
    ordered = sorted(buckets)
    if not ordered or ordered[-1][1] <= 0:
        return None
    rank, below, lower = q * ordered[-1][1], 0.0, 0.0
    for bound, count in ordered:
        if count >= rank and count > below:
            return lower if math.isinf(bound) else lower + (bound - lower) * (rank - below) / (count - below)
        below, lower = count, bound
    return None
