"""The scorer's metrics for Prometheus."""

from __future__ import annotations

from functools import cache

from ratchet.service.metrics import Count, LoopCounter, LoopHistogram

SECONDS = (0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

scores = LoopHistogram(
    "ratchet_scorer_score",
    "Scores given, by agent and adapter version.",
    ["agent_id", "adapter_version"],
    buckets=tuple(tenth / 10 for tenth in range(11)),
)
samples = LoopCounter("ratchet_scorer_samples_total", "Samples by how scoring them ended.", ["status"])
score_seconds = LoopHistogram(
    "ratchet_scorer_score_seconds", "Seconds to score a task, batching included.", buckets=SECONDS
)
queue_seconds = LoopHistogram("ratchet_scorer_queue_seconds", "Seconds from the answer to its scorer.", buckets=SECONDS)
tasks = LoopCounter(
    "ratchet_scorer_tasks_total",
    "Responses handled: scored, late (its deadline had passed, or would have), unanswered (nothing to score), "
    "draft (sent on to be completed), retried.",
    ["outcome"],
)

judge_calls = LoopCounter(
    "ratchet_scorer_judge_calls_total",
    "Calls of the judge by how they ended: ok, refused (by the server, or no verdict could be read), timeout, "
    "unavailable.",
    ["outcome"],
)
verdicts_saved = LoopCounter(
    "ratchet_scorer_verdicts_saved_total",
    "Answers that nobody was asked about: equal (to another of their group), decided (by the first of two scorers).",
    ["reason"],
)
verdict_difference = LoopHistogram(
    "ratchet_scorer_verdict_difference",
    "How far two verdicts on the same answer lie apart.",
    buckets=(0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0),
)


@cache
def verdicts_saved_by(reason: str) -> Count:
    return verdicts_saved.labels(reason)


@cache
def samples_of(status: str) -> Count:
    """Looking labels up costs more than counting."""
    return samples.labels(status)


@cache
def tasks_of(outcome: str) -> Count:
    return tasks.labels(outcome)
