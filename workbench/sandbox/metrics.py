"""Metrics of the sandbox, by each service that needs one."""

from __future__ import annotations

from prometheus_client import Gauge

refused = Gauge(
    "ratchet_sandbox_refused", "1 while a service ends because its sandbox does not hold; its log says what mends it."
)
