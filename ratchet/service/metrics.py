"""The figures every service counts and shows at /metrics. A service adds its own beside its own code.

Label children are looked up once and kept: counting costs a fraction of a microsecond.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client import REGISTRY, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry


class Count:
    """A count under one set of label values."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        """Add 0 or more."""
        self.value += amount


class Series:
    """The observations under one set of label values."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Counts by bucket, each without those below it; the last has what is over every bound."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


C = TypeVar("C", Count, Series)


class LoopMetric(Collector, Generic[C]):
    """Without labels it has one child from the start."""

    def __init__(self, name: str, about: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name = name
        self._about = about
        self.label_names = tuple(labels)
        self._children: dict[tuple[str, ...], C] = {} if labels else {(): self._child()}
        registry.register(self)

    def labels(self, *values: str) -> C:
        """The child of these label values, made at the first call. Looking it up costs more than counting: keep it."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self._name} has the labels {', '.join(self.label_names)}, not {', '.join(values)}")
            child = self._children[values] = self._child()
        return child

    @abstractmethod
    def _child(self) -> C: ...


class LoopCounter(LoopMetric[Count]):
    """Shown as `<name>_total`, whether or not `name` says so."""

    def __init__(
        self, name: str, about: str, labels: Sequence[str] = (), *, registry: CollectorRegistry = REGISTRY
    ) -> None:
        super().__init__(name, about, labels, registry)

    def _child(self) -> Count:
        return Count()

    def describe(self) -> Iterable[Metric]:
        return [CounterMetricFamily(self._name, self._about, labels=self.label_names)]

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._about, labels=self.label_names)
        for values, count in list(self._children.items()):
            family.add_metric(values, count.value)
        return [family]


class LoopHistogram(LoopMetric[Series]):
    """`buckets`: ascending upper bounds, each within its bucket."""

    def __init__(
        self,
        name: str,
        about: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self._buckets = tuple(map(float, buckets))
        super().__init__(name, about, labels, registry)

    def observe(self, value: float) -> None:
        """Observe on a histogram without labels."""
        self._children[()].observe(value)

    def _child(self) -> Series:
        return Series(self._buckets)

    def describe(self) -> Iterable[Metric]:
        return [HistogramMetricFamily(self._name, self._about, labels=self.label_names)]

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._about, labels=self.label_names)
        bounds = [*map(str, self._buckets), "+Inf"]
        for values, series in list(self._children.items()):
            family.add_metric(values, list(zip(bounds, accumulate(series.counts), strict=True)), series.total)
        return [family]


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

MESSAGES = LoopCounter("ratchet_messages", "Deliveries by queue and by what became of them.", ("queue", "outcome"))
HANDLE_SECONDS = LoopHistogram("ratchet_handle_seconds", "From a delivery to its outcome.", ("queue",), buckets=SECONDS)
PUBLISH_SECONDS = LoopHistogram(
    "ratchet_publish_seconds", "From a publish to the broker's confirm.", ("queue",), buckets=SECONDS
)
PUBLISH_RETRIES = Counter("ratchet_publish_retries", "Publishes repeated after a nack or a lost connection.")
IN_FLIGHT = Gauge("ratchet_in_flight", "Deliveries being handled now.", ("queue",))
BROKER_CONNECTED = Gauge("ratchet_broker_connected", "1 while connected to the broker, else 0.")
READY = Gauge("ratchet_ready", "1 while the service can do its work, or ends in good order, else 0; /readyz says why.")

DEAD_LETTERS_WAITING = Gauge(
    "ratchet_dead_letters_waiting", "Dead letters on disk, because their queue has no room for them."
)

OUTCOMES = ("acked", "retried", "dead_lettered", "requeued")


class QueueMetrics:
    """The children of one queue."""

    def __init__(self, queue: str) -> None:
        self.acked, self.retried, self.dead_lettered, self.requeued = (
            MESSAGES.labels(queue, outcome) for outcome in OUTCOMES
        )
        self.handle_seconds = HANDLE_SECONDS.labels(queue)
        self.publish_seconds = PUBLISH_SECONDS.labels(queue)
        self.in_flight = IN_FLIGHT.labels(queue)


@cache
def queue_metrics(queue: str) -> QueueMetrics:
    """Return the metrics of a queue, for names of a topology only: each name costs a line at /metrics for good."""
    return QueueMetrics(queue)


def quantile(q: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """Estimate a quantile from cumulative (upper bound, count) buckets, linear within a bucket, as Prometheus does.

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
