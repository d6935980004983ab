"""Every metric that is really exported, with its labels: by our services, RabbitMQ, the log shipper and Prometheus."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from prometheus_client import REGISTRY, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from ratchet.service.metrics import LoopMetric
from services.agent.metrics import EngineProcessId

ROOT = Path(__file__).parents[2]
TARGET_LABELS = frozenset({"job", "instance", "fleet", "namespace"})
"""Labels that Prometheus adds to every series (infra/prometheus/prometheus.yml); the namespace on Kubernetes only."""
FOREIGN = {
    name: frozenset(labels)
    for line in (Path(__file__).parent / "foreign_metrics.txt").read_text().splitlines()
    if line and not line.startswith("#")
    for name, *labels in [line.split()]
}
DEFINES = re.compile(
    r"^from (?:prometheus_client|ratchet\.service\.\w+) import .*\b(?:\w*Counter|Gauge|\w*Histogram)\b",
    re.MULTILINE,
)


@cache
def exported() -> dict[str, frozenset[str]]:
    """Name of a series as Prometheus sees it, and the labels it can have."""
    for path in sorted(path for top in ("workbench", "ratchet", "services") for path in (ROOT / top).rglob("*.py")):
        if DEFINES.search(path.read_text()):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    ours: dict[str, frozenset[str]] = {}
    for collector, names in REGISTRY._collector_to_names.items():
        labels = frozenset(_labels(collector))
        all_names = (*names, *_of_a_child(collector))
        ours |= {name: labels | ({"le"} if name.endswith("_bucket") else frozenset()) for name in all_names}
    return ours | FOREIGN


def _of_a_child(collector: Collector) -> Sequence[str]:
    """Return the metrics that an agent has of its model's process, with this process in its place."""
    if not isinstance(collector, ProcessCollector):
        return ()
    before, EngineProcessId.value = EngineProcessId.value, os.getpid()
    try:
        return [sample.name for family in collector.collect() for sample in family.samples]
    finally:
        EngineProcessId.value = before


def _labels(collector: Collector) -> Sequence[str]:
    if isinstance(collector, LoopMetric):
        return collector.label_names
    return collector._labelnames if isinstance(collector, MetricWrapperBase) else ()
