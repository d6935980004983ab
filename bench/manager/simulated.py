"""Shares of tenants and waits of priorities, in simulated time: the order alone, with a fleet of fixed speed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from services.manager.order import FairOrder, Waiting

WEIGHTS = {"one": 1.0, "two": 2.0, "four": 4.0, "flood": 1.0}
WINDOW, PER_S = 256, 100
TICK_S = 0.05


def shares(seconds: int = 600) -> dict[str, object]:
    """Return the largest deviation of any minute's shares from the weights, of three tenants beside one that floods."""
    order = FairOrder(30.0)
    waiting = dict.fromkeys(WEIGHTS, 100000)
    served: dict[str, float] = dict.fromkeys(WEIGHTS, 0.0)
    in_fleet: deque[str] = deque()
    ended: deque[tuple[int, str]] = deque()
    worst = 0.0
    for tick in range(int(seconds / TICK_S)):
        now = tick * TICK_S
        jobs = [Waiting(name, name, 1, served[name], left) for name, left in waiting.items() if left]
        for name, count in order.choose(jobs, WINDOW - len(in_fleet), WEIGHTS, now):
            waiting[name] -= count
            served[name] = now
            in_fleet.extend([name] * count)
        for _ in range(min(len(in_fleet), int(PER_S * TICK_S))):
            ended.append((tick, in_fleet.popleft()))
        while ended[0][0] <= tick - 60 / TICK_S:
            ended.popleft()
        if now >= 60 and tick % 20 == 0:
            counts = Counter(name for _, name in ended)
            total = sum(counts.values())
            expected = {name: weight / sum(WEIGHTS.values()) for name, weight in WEIGHTS.items()}
            worst = max(worst, *(abs(counts[name] / total / share - 1) for name, share in expected.items()))
    return {"minutes": seconds / 60, "tenants": WEIGHTS, "largest_deviation": round(worst, 4)}


def waits(ageing_s: float = 30.0) -> dict[str, object]:
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
