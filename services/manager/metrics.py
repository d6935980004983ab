"""The manager's figures for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

ended = Counter("ratchet_manager_ended_tasks_total", "Tasks of jobs that ended: ok, failed or expired.", ["state"])
tasks = Gauge(
    "ratchet_manager_open_tasks", "Tasks of open jobs: waiting in the manager, or released to the fleet.", ["state"]
)
quota_used = Gauge(
    "ratchet_manager_quota_used_ratio", "Used share of each limit that a tenant has.", ["tenant", "limit"]
)
jobs = Gauge("ratchet_manager_open_jobs", "Jobs that are open, by state.", ["state"])
