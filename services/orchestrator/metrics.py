"""What the orchestrator counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import Counter, Gauge, Histogram

from schemas.interaction import Interaction

LATENCY_BUCKETS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
SCORE_BUCKETS = tuple(step / 10 for step in range(11))

tasks_admitted = Counter("ratchet_tasks_admitted_total", "Tasks admitted.", ["agent"])
tasks_refused = Counter("ratchet_tasks_refused_total", "Tasks that were not valid.")
tasks_repeated = Counter("ratchet_tasks_repeated_total", "Tasks whose id was known already.")
tasks_closed = Counter("ratchet_tasks_closed_total", "Tasks with a Result.", ["agent", "status"])
samples_logged = Counter("ratchet_samples_logged_total", "Lines in the log.", ["agent", "adapter_version"])
samples_unscored = Counter("ratchet_samples_unscored_total", "Samples without a score.", ["agent", "status"])
sample_score = Histogram("ratchet_sample_score", "Scores.", ["agent", "adapter_version"], buckets=SCORE_BUCKETS)
stage_seconds = Histogram(
    "ratchet_stage_seconds", "Seconds a task spent in a stage.", ["stage"], buckets=LATENCY_BUCKETS
)
open_tasks = Gauge("ratchet_open_tasks", "Tasks admitted and not yet closed.")
is_active = Gauge("ratchet_orchestrator_active", "1 where this orchestrator works, 0 where it is the standby.")

_stages = {
    "queue": stage_seconds.labels("queue"),
    "generate": stage_seconds.labels("generate"),
    "score_queue": stage_seconds.labels("score_queue"),
    "score": stage_seconds.labels("score"),
    "total": stage_seconds.labels("total"),
}


def count_samples(lines: Sequence[Interaction]) -> None:
    """These lines of one task were logged."""
    first = lines[0]
    if first.sample is None:
        return
    samples_logged.labels(first.agent_id, first.adapter_version).inc(len(lines))
    scores = sample_score.labels(first.agent_id, first.adapter_version)
    for line in lines:
        if line.score is None:
            samples_unscored.labels(first.agent_id, line.score_status or "unscorable").inc()
        else:
            scores.observe(line.score)
    latencies = first.latencies
    _stages["queue"].observe(latencies.queue_s)
    _stages["generate"].observe(latencies.generate_s)
    _stages["score_queue"].observe(latencies.score_queue_s)
    _stages["score"].observe(latencies.score_s)
    _stages["total"].observe(latencies.total_s)
