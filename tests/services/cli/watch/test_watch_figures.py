"""The figures of `ratchet watch`, from the services' Prometheus texts and what the API tells."""

from __future__ import annotations

import io
from typing import Any

from prometheus_client import CollectorRegistry, Counter, generate_latest
from rich.console import Console

from services.cli.fleet.readiness import QueueDepth
from services.cli.terminal import number
from services.cli.watch.figures import (
    Snapshot,
    figures,
    parse_series,
    plain_line,
    render_watch,
    rollouts_of,
    seconds,
    total,
)

GLANCE: dict[str, Any] = {
    "tasks": {"open": 3, "answered": 50, "failed": 2, "expired": 1, "per_s": 4.0},
    "stages": [{"stage": "total", "count": 4, "p50": 0.05, "p95": 0.06}],
    "scores": [{"agent_id": "small", "adapter_version": "v1.0.1", "samples": 2, "mean": 0.5}],
}


def exposed(*, tokens: int, acked: int = 0) -> str:
    registry = CollectorRegistry()
    Counter("ratchet_agent_tokens_total", "-", ["agent"], registry=registry).labels("small").inc(tokens)
    messages = Counter("ratchet_messages_total", "-", ["queue", "outcome"], registry=registry)
    messages.labels("tasks", "acked").inc(acked)
    return generate_latest(registry).decode()


def snapshot(at: float, *texts: str) -> Snapshot:
    return Snapshot(at, (QueueDepth("tasks", 7, 1), QueueDepth("rewards", None)), parse_series(texts))


def test_rates_are_what_was_done_between_two_looks() -> None:
    seen = figures(snapshot(12.0, exposed(tokens=50, acked=9)), snapshot(10.0, exposed(tokens=20, acked=5)))

    assert (seen.tokens_per_s, seen.queues[0].per_s) == (15.0, 2.0)


def test_a_service_that_started_again_gives_no_negative_rate() -> None:
    assert figures(snapshot(12.0, exposed(tokens=3)), snapshot(10.0, exposed(tokens=20))).tokens_per_s == 0.0


def test_before_there_are_two_looks_there_is_no_rate() -> None:
    assert figures(snapshot(1.0, exposed(tokens=3)), None).tokens_per_s is None


def test_the_same_counter_of_two_services_is_summed() -> None:
    series = parse_series([exposed(tokens=3), exposed(tokens=4)])

    assert total(series, "ratchet_agent_tokens_total", agent="small") == 7


def test_tasks_stages_and_scores_are_those_that_the_api_tells() -> None:
    seen = figures(snapshot(0.0), None, GLANCE)

    assert (seen.tasks_per_s, seen.open_tasks, seen.answered, seen.failed) == (4.0, 3, 50, 3)
    assert [(one.stage, one.count, one.p50) for one in seen.stages] == [("total", 4, 0.05)]
    assert [(one.agent, one.adapter_version, one.count, one.mean) for one in seen.scores] == [
        ("small", "v1.0.1", 2, 0.5)
    ]


def test_it_can_be_shown_with_and_without_traffic() -> None:
    console = Console(width=100, record=True)
    empty = figures(Snapshot(0.0, (), {}), None)
    busy = figures(snapshot(1.0, exposed(tokens=4)), None, GLANCE)

    console.print(render_watch(empty, ("the broker does not answer",)))
    console.print(render_watch(busy, ()))

    shown = console.export_text()
    assert "the broker does not answer" in shown
    assert "small v1.0.1" in shown
    assert plain_line(busy).startswith("4.0 tasks/s")


def test_seconds_are_written_in_the_unit_a_person_would_use() -> None:
    assert [seconds(value) for value in (None, 0.0000512, 0.0123, 4.25)] == ["–", "51 µs", "12 ms", "4.2 s"]
    assert number(1234.56, ",.1f") == "1,234.6"


def test_rollouts_that_run_are_shown_and_the_newest_that_ended() -> None:
    told = [
        {
            "task_id": "t",
            "sample": n,
            "program": "shell",
            "state": state,
            "seconds": 2.5,
            "calls": 3,
            "sampled_tokens": 70,
            "says": f"end {n}",
        }
        for n, state in enumerate(["finished"] * 9 + ["limit", "running", "running"])
    ]
    seen = figures(snapshot(1.0), None, rollouts=rollouts_of(told))
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render_watch(seen, ()))
    text = console.export_text()

    assert [one.sample for one in seen.rollouts] == [*range(2, 12)]
    assert plain_line(seen).endswith("2 rollouts at 6 calls and 140 tokens")
    assert all(word in text for word in ("t 10", "shell", "limit", "2.5 s", "t 9 limit: end 9"))
    assert "end 8" not in text
    assert "rollouts" not in plain_line(figures(snapshot(1.0), None))
