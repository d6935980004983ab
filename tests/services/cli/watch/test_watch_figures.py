"""From Prometheus texts to the figures of `ratchet watch`."""

from __future__ import annotations

import io

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from rich.console import Console

from services.cli.fleet.queue_depths import QueueDepth
from services.cli.watch.figures import Snapshot, figures, parse_series, rollouts_of, total
from services.cli.watch.view import plain_line, rate, render_watch, seconds


def exposed(*, closed: int, own: int = 0, stage_s: tuple[float, ...] = (), scores: tuple[float, ...] = ()) -> str:
    registry = CollectorRegistry()
    tasks = Counter("ratchet_tasks_closed_total", "-", ["agent", "status"], registry=registry)
    tasks.labels("small", "ok").inc(closed)
    if own:
        fleets = Counter("ratchet_own_tasks_closed_total", "-", ["agent", "status"], registry=registry)
        fleets.labels("small", "ok").inc(own)
    stages = Histogram("ratchet_stage_seconds", "-", ["stage"], buckets=(0.1, 1, 10), registry=registry)
    score = Histogram("ratchet_sample_score", "-", ["agent", "adapter_version"], registry=registry)
    for value in stage_s:
        stages.labels("total").observe(value)
    for value in scores:
        score.labels("small", "v1.0.1").observe(value)
    return generate_latest(registry).decode()


def snapshot(at: float, *texts: str) -> Snapshot:
    return Snapshot(at, (QueueDepth("tasks", 7, 1), QueueDepth("rewards", None)), parse_series(texts))


def test_the_rate_is_what_was_closed_between_two_looks() -> None:
    seen = figures(snapshot(12.0, exposed(closed=50)), snapshot(10.0, exposed(closed=20)))

    assert seen.tasks_per_s == 15.0
    assert seen.answered == 50


def test_the_fleets_own_tasks_are_no_answers_to_users() -> None:
    seen = figures(snapshot(12.0, exposed(closed=50, own=25)), snapshot(10.0, exposed(closed=20, own=5)))

    assert (seen.tasks_per_s, seen.answered) == (5.0, 25)


def test_a_service_that_started_again_gives_no_negative_rate() -> None:
    seen = figures(snapshot(12.0, exposed(closed=3)), snapshot(10.0, exposed(closed=20)))

    assert seen.tasks_per_s == 0.0


def test_before_there_are_two_looks_there_is_no_rate() -> None:
    assert figures(snapshot(1.0, exposed(closed=3)), None).tasks_per_s is None


def test_the_same_counter_of_two_services_is_summed() -> None:
    series = parse_series([exposed(closed=3), exposed(closed=4)])

    assert total(series, "ratchet_tasks_closed_total", status="ok") == 7


def test_latencies_are_those_since_the_last_look_and_of_all_where_nothing_came_since() -> None:
    before = snapshot(0.0, exposed(closed=2, stage_s=(0.05, 0.05)))
    after = snapshot(1.0, exposed(closed=4, stage_s=(0.05, 0.05, 5.0, 5.0)))

    assert (figures(after, before).stages[-1].p50 or 0) > 1
    assert figures(after, before).stages[-1].count == 2
    assert figures(before, before).stages[-1].count == 2


def test_scores_are_means_by_adapter_version() -> None:
    (score,) = figures(snapshot(0.0, exposed(closed=2, scores=(0.25, 0.75))), None).scores

    assert (score.agent, score.adapter_version, score.count, score.mean) == ("small", "v1.0.1", 2, 0.5)


def test_it_can_be_shown_with_and_without_traffic() -> None:
    console = Console(width=100, record=True)
    empty = figures(Snapshot(0.0, (), {}), None)
    busy = figures(snapshot(1.0, exposed(closed=4, stage_s=(0.05,), scores=(1.0,))), snapshot(0.0, exposed(closed=0)))

    console.print(render_watch(empty, ("the broker does not answer",)))
    console.print(render_watch(busy, ()))

    shown = console.export_text()
    assert "the broker does not answer" in shown
    assert "small v1.0.1" in shown
    assert plain_line(busy).startswith("4.0 tasks/s")


def test_seconds_are_written_in_the_unit_a_person_would_use() -> None:
    assert [seconds(value) for value in (None, 0.0000512, 0.0123, 4.25)] == ["–", "51 µs", "12 ms", "4.2 s"]
    assert rate(1234.56) == "1,234.6"


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
    seen = figures(snapshot(1.0, exposed(closed=3)), None, rollouts_of(told))
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render_watch(seen, ()))
    text = console.export_text()

    assert [one.sample for one in seen.rollouts] == [*range(2, 12)]
    assert plain_line(seen).endswith("2 rollouts at 6 calls and 140 tokens")
    assert all(word in text for word in ("t 10", "shell", "limit", "2.5 s", "t 9 limit: end 9"))
    assert "end 8" not in text
    assert "rollouts" not in plain_line(figures(snapshot(1.0, exposed(closed=3)), None))
