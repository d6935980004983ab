"""The order in which waiting tasks are released: fair between tenants, by priority within one. Pure.

Between tenants: deficit round robin. In each round a tenant may release as many samples as its weight, and keeps what
it could not use while it has work. Within a tenant: the job with the highest priority, where each `ageing_s` since its
last release counts as one step. So a job waits at most (10 - 1) x `ageing_s` for a turn among those of its tenant, and
jobs of equal priority take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

SLOW = 256
"""Tasks that the fleet may have of an agent that ends fewer in a second: what comes later waits for no more of them."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job with tasks that wait. `served_at`: when the last of its tasks was released, or when it came."""

    job_id: str
    tenant: str
    priority: int
    served_at: float
    tasks: int
    samples: int = 1


@dataclass(slots=True)
class _Line:
    """The part of a job that is left while an order is made."""

    job: Waiting
    left: int
    served_at: float
    taken: int = 0


_Rank = tuple[float, int, float, str]
"""The lowest has its turn. No two jobs have the same, for it ends with the job's id."""


class FairOrder:
    """Remembers whose turn it is, and what each tenant may still release."""

    def __init__(self, ageing_s: float) -> None:
        self._ageing_s = ageing_s
        self._ring: deque[str] = deque()
        self._deficit: dict[str, float] = {}
        self._has_its_share = False
        """True if the tenant at the head of the ring was given its weight in this round."""

    def choose(
        self, jobs: Iterable[Waiting], room: int, weights: Mapping[str, float], now: float
    ) -> list[tuple[str, int]]:
        """Return how many tasks of which jobs to release now, `room` in all, in order. Tenants without a weight: 1."""
        lines: dict[str, list[tuple[_Rank, _Line]]] = {}
        for job in jobs:
            if job.tasks > 0:
                line = _Line(job, job.tasks, job.served_at)
                lines.setdefault(job.tenant, []).append((self._rank(line, now), line))
        for of_tenant in lines.values():
            heapify(of_tenant)
        self._let_in(lines)
        chosen: dict[str, int] = {}
        while room > 0 and self._ring:
            tenant = self._ring[0]
            if not self._has_its_share:
                self._deficit[tenant] += weights.get(tenant, 1.0)
                self._has_its_share = True
            line = lines[tenant][0][1]
            if self._deficit[tenant] < line.job.samples:
                self._next_turn()
                continue
            self._deficit[tenant] -= line.job.samples
            room -= 1
            chosen[line.job.job_id] = chosen.get(line.job.job_id, 0) + 1
            line.left, line.taken, line.served_at = line.left - 1, line.taken + 1, now
            if line.left:
                heapreplace(lines[tenant], (self._rank(line, now), line))
            else:
                heappop(lines[tenant])
                if not lines[tenant]:
                    self._leave()
        return list(chosen.items())

    def _rank(self, line: _Line, now: float) -> _Rank:
        waited = max(0.0, now - line.served_at)
        return -(line.job.priority + waited / self._ageing_s), line.taken, line.served_at, line.job.job_id

    def _let_in(self, lines: Collection[str]) -> None:
        """Remove tenants without work, with what they did not use; put new ones last."""
        head = self._ring[0] if self._ring else None
        self._ring = deque(tenant for tenant in self._ring if tenant in lines)
        self._has_its_share = self._has_its_share and bool(self._ring) and self._ring[0] == head
        self._deficit = {tenant: self._deficit[tenant] for tenant in self._ring}
        for tenant in lines:
            if tenant not in self._deficit:
                self._ring.append(tenant)
                self._deficit[tenant] = 0.0

    def _next_turn(self) -> None:
        self._ring.rotate(-1)
        self._has_its_share = False

    def _leave(self) -> None:
        del self._deficit[self._ring.popleft()]
        self._has_its_share = False


class Lane:
    """The tasks of one agent, or its training runs: their order, and how many of them the fleet may have."""

    def __init__(self, ageing_s: float, most: int) -> None:
        self.order = FairOrder(ageing_s)
        self._most = most
        self._in_fleet = 0
        self._ended: deque[tuple[float, int]] = deque()

    def room(self, in_fleet: int, now: float) -> int:
        """Return how many tasks to release, where the fleet has `in_fleet` of them.

        It may have as many as ended within a second, for a fast agent works in larger batches then; at least SLOW,
        and at most the bound.
        """
        self._ended.append((now, max(0, self._in_fleet - in_fleet)))
        while not now - 1.0 <= self._ended[0][0] <= now:  # what is later was counted before the clock was set back
            self._ended.popleft()
        self._in_fleet = in_fleet
        window = min(self._most, max(SLOW, sum(count for _, count in self._ended)))
        return max(0, window - in_fleet)

    def count_released(self, count: int) -> None:
        self._in_fleet += count


class Lanes(dict[str, Lane]):
    """The lanes by name; each is made when it is first asked for. `most`: tasks that the fleet may have of a lane."""

    def __init__(self, ageing_s: float, most: int) -> None:
        super().__init__()
        self.ageing_s = ageing_s
        self.least = min(SLOW, most)
        self._most = most

    def __missing__(self, name: str) -> Lane:
        self[name] = lane = Lane(self.ageing_s, self._most)
        return lane
