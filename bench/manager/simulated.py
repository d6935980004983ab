"""Waits of priorities, in simulated time: the order alone, with a fleet of fixed speed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.manager.order import FairOrder, Waiting

TICK_S = 0.05


def waits(ageing_s: float = 30.0) -> dict[str, Any]:
    """Return the longest time between two turns of a job of priority 1, beside jobs of priority 10 that never end.

    The bound is nine steps of ageing, and one turn of each job: that is when the low job's rank is above all others'.
    """
    order = FairOrder(ageing_s)
    served = dict.fromkeys([f"high-{n}" for n in range(3)] + ["low"], 0.0)
    last, longest = 0.0, 0.0
    for now, name in _turns(order, served, 7200):
        if name == "low":
            longest, last = max(longest, now - last), now
    return {"bound_s": 9 * ageing_s + TICK_S * len(served), "longest_s": round(longest, 3)}


def _turns(order: FairOrder, served: dict[str, float], seconds: int) -> Iterator[tuple[float, str]]:
    for tick in range(int(seconds / TICK_S)):
        now = tick * TICK_S
        jobs = [Waiting(name, "t", 1 if name == "low" else 10, at, 1_000_000) for name, at in served.items()]
        for name, _ in order.choose(jobs, 1, {}, now):
            served[name] = now
            yield now, name
