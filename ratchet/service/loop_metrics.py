"""Prometheus metrics for the path of every message: looked at rarely, counted into often, from one thread.

prometheus-client's own take locks and two to four microseconds a time; these take a tenth of that. They leave out
exemplars, the `_created` series, and counting from more than one thread: use them on the event loop only.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client import REGISTRY
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
