"""The metrics of the runner, for Prometheus."""

from __future__ import annotations

from functools import cache

from prometheus_client import Gauge

from ratchet.service.metrics import Count, LoopCounter, LoopHistogram
from schemas.messages.response import Sample

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)

rollouts = LoopCounter(
    "ratchet_runner_rollouts_total",
    "Rollouts, by program and by how they ended: finished, failed, limit, lost (by a failure of ours), cancelled "
    "(another of its group had passed).",
    ["program", "status"],
)
tokens = LoopCounter("ratchet_runner_tokens_total", "Tokens sampled in rollouts.", ["program"])
calls = LoopCounter("ratchet_runner_calls_total", "Calls of the model in rollouts.", ["program"])
rollout_seconds = LoopHistogram(
    "ratchet_runner_rollout_seconds",
    "Seconds from a rollout's start to its end, the wait for its turn left out.",
    ["program"],
    buckets=SECONDS,
)
wait_seconds = LoopHistogram("ratchet_runner_wait_seconds", "Seconds a rollout waited for its turn.", buckets=SECONDS)
tasks = LoopCounter(
    "ratchet_runner_tasks_total",
    "Work handled, by outcome: answered, failed (no retry mends it), expired, cancelled.",
    ["outcome"],
)
resumed = LoopCounter(
    "ratchet_runner_resumed_total", "Rollouts of a Work that came again which were there, and not run a second time."
)
at_work = Gauge("ratchet_runner_rollouts_running", "Rollouts that run now.")
waiting = Gauge("ratchet_runner_rollouts_waiting", "Rollouts that wait for their turn.")
kept_share = Gauge(
    "ratchet_runner_kept_share",
    "Finished rollouts whose task is not answered yet, as a share of the room for them; at 1 no more are kept.",
)

answered, failed, expired, cancelled = (
    tasks.labels(outcome) for outcome in ("answered", "failed", "expired", "cancelled")
)


@cache
def _counter_of_ends(program: str, status: str) -> Count:
    """Looking labels up costs more than counting."""
    return rollouts.labels(program, status)


def observe(program: str, sample: Sample, seconds: float) -> None:
    """Count one rollout."""
    _counter_of_ends(program, sample.status or "finished").inc()
    rollout_seconds.labels(program).observe(seconds)
    if sample.usage is not None:
        tokens.labels(program).inc(sample.usage.sampled_tokens)
        calls.labels(program).inc(sample.usage.calls)
