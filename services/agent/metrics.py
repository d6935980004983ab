"""The agent's metrics for Prometheus; all by adapter version where one answers."""

from __future__ import annotations

from functools import cache

from prometheus_client import Gauge, ProcessCollector

from ratchet.service.metrics import Count, LoopCounter, LoopHistogram, Series
from schemas.messages.response import GenerationLatencies
from services.agent.engines.engine import Generation

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

tokens_generated = LoopCounter("ratchet_agent_tokens_total", "Tokens sampled.", ["adapter_version"])
call_tokens = LoopCounter(
    "ratchet_agent_call_tokens_total",
    "Tokens of programs' calls: sampled, or given again to a runner that had lost them.",
    ["source"],
)
tokens_sampled, tokens_given_again = call_tokens.labels("sampled"), call_tokens.labels("kept")
samples_generated = LoopCounter(
    "ratchet_agent_samples_total", "Samples, by why they ended.", ["adapter_version", "finish_reason"]
)
generate_seconds = LoopHistogram(
    "ratchet_agent_generate_seconds",
    "Seconds to answer a task, batching included.",
    ["adapter_version"],
    buckets=SECONDS,
)
queue_seconds = LoopHistogram(
    "ratchet_agent_queue_seconds", "Seconds from admission to the agent.", ["adapter_version"], buckets=SECONDS
)
batch_samples = LoopHistogram(
    "ratchet_agent_batch_samples",
    "Samples generated at once, by an engine in its own process.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
)
tasks = LoopCounter(
    "ratchet_agent_tasks_total",
    "Work handled, by outcome: answered, failed (no retry mends it), expired, cancelled, retried.",
    ["outcome"],
)
adapters_loaded = Gauge("ratchet_agent_adapters_loaded", "Adapters the engine holds.")


class EngineProcessId:
    """The id of the child with the engine: its memory and CPU seconds are shown beside the agent's own.

    0: there is none.
    """

    value = 0


ProcessCollector(namespace="ratchet_agent_engine", pid=lambda: EngineProcessId.value)


answered, failed, expired, cancelled, retried = (
    tasks.labels(outcome) for outcome in ("answered", "failed", "expired", "cancelled", "retried")
)


@cache
def _samples(version: str, finish_reason: str) -> Count:
    """Looking labels up costs more than counting."""
    return samples_generated.labels(version, finish_reason)


@cache
def _queue_series(version: str) -> Series:
    return queue_seconds.labels(version)


@cache
def _answer_series(version: str) -> tuple[Series, Count]:
    return generate_seconds.labels(version), tokens_generated.labels(version)


def observe(version: str, answer: Generation | Exception, latencies: GenerationLatencies) -> None:
    """Count one finished Work."""
    _queue_series(version).observe(latencies.queue_s)
    if isinstance(answer, Exception):
        failed.inc()
        return
    answered.inc()
    generate, tokens = _answer_series(version)
    generate.observe(latencies.generate_s)
    for sample in answer.samples:
        _samples(version, str(sample.finish_reason)).inc()
    tokens.inc(sum([len(sample.completion_ids or ()) for sample in answer.samples]))
