"""What is wrong is said in sentences."""

from __future__ import annotations

from rich.console import Console

from ratchet.bus.topology import Queue, Topology, fleet_topology
from services.cli.fleet.readiness import QueueDepth
from services.cli.status import (
    ServiceStatus,
    StatusReport,
    quality_table,
    queue_faults,
    render_status,
    rows_of,
)

TOPOLOGY = fleet_topology(("small",))


def depths(**changed: QueueDepth) -> tuple[QueueDepth, ...]:
    return tuple(changed.get(queue.name, QueueDepth(queue.name, 0, 1)) for queue in TOPOLOGY.queues)


def text_of(report: StatusReport) -> str:
    console = Console(width=120, record=True)
    console.print(render_status(report))
    return console.export_text()


def test_a_fleet_whose_queues_are_all_consumed_has_no_fault() -> None:
    assert queue_faults(depths(), TOPOLOGY) == []


def test_a_queue_nobody_consumes_is_named_with_who_should() -> None:
    (fault,) = queue_faults(depths(responses=QueueDepth("responses", 5, 0)), TOPOLOGY)

    assert "responses" in fault
    assert "scorer" in fault


def test_queues_for_people_need_no_consumer() -> None:
    assert queue_faults(depths(results=QueueDepth("results", 5, 0)), TOPOLOGY) == []


def test_a_trainer_is_missed_only_when_something_waits_for_it() -> None:
    topology = Topology((Queue("training", "any", ("all",), ("trainer",), "-", share=1, disk=1),), ())

    assert queue_faults((QueueDepth("training", 0, 0),), topology) == []
    assert len(queue_faults((QueueDepth("training", 1, 0),), topology)) == 1


def test_a_missing_queue_is_a_fault() -> None:
    assert queue_faults(depths(tasks=QueueDepth("tasks", None)), TOPOLOGY) == ["the broker has no queue tasks"]


def test_the_report_shows_each_service_with_its_own_reason() -> None:
    service = ServiceStatus("scorer", 12, False, "the model is not loaded yet", "http://127.0.0.1:8750", "scorer.log")
    report = StatusReport("amqp://guest@host/", None, (service,), depths(), True, ("scorer: not yet",))

    shown = text_of(report)

    assert "not healthy" in shown
    assert "the model is not loaded yet" in shown
    assert not report.healthy


def test_what_users_are_served_is_shown_with_its_interval_where_there_is_one() -> None:
    served = {"tasks": 9, "mean": 0.9, "low": 0.85, "high": 0.95}
    single = {"tasks": 9, "mean": 0.5, "low": None, "high": None}
    figure = {"agent_id": "small", "adapter_version": "v1.0.1", "served": served, "single": single, "distinct": None}
    rows = rows_of({"agents": [], "quality": [figure]})
    shown = text_of(StatusReport("amqp://guest@host/", None, (), depths(), True, (), **rows))

    assert "small v1.0.1" in shown
    assert "0.900 [0.850, 0.950]" in shown
    assert "0.500" in shown
    assert rows_of(None) == {}


def test_what_was_saved_is_said_of_the_agents_that_saved_any() -> None:
    saved = {"now": 2, "usual": 8, "least": 2, "saved_samples": 1200, "saved_tokens": 34567}
    none = saved | {"now": 8, "saved_samples": 0, "saved_tokens": 0}
    glance = {"agents": [{"agent_id": "small", "samples": saved}, {"agent_id": "other", "samples": none}]}
    rows = rows_of(glance, learns=False)
    shown = text_of(StatusReport("amqp://guest@host/", None, (), depths(), True, (), **rows))

    assert "small: 2 answers a task; 1,200 answers, 34,567 tokens saved" in shown
    assert [row["agent_id"] for row in rows["saved"]] == ["small"]


def test_how_far_the_next_training_is_is_said_with_what_it_takes() -> None:
    glance = {
        "agents": [
            {"agent_id": "small", "learning": {"groups": 3, "wanted": 0, "pending": None}},
            {"agent_id": "other", "learning": {"groups": 40, "wanted": 64, "pending": None}},
        ]
    }
    report = StatusReport("amqp://guest@host/", None, (), depths(), True, (), **rows_of(glance))

    shown = " ".join(text_of(report).split())
    assert "small: 3 groups to learn from since the last training" in shown
    assert "`ratchet train` needs 8 and takes older ones too" in shown
    assert "RATCHET_TRAIN_AFTER_GROUPS is off" in shown and "the fleet trains at 64" in shown
    assert rows_of(glance, learns=False)["learning"] == ()


def test_a_held_up_candidate_and_a_judge_without_an_auditor_are_said_and_the_fleet_is_healthy() -> None:
    told = {"name": "v1.0.3", "reason": "no scores", "tries": 1, "again_at": "2026-11-23T12:00:30Z"}
    gap = "nobody would notice a fooled judge"
    glance = {"agents": [{"agent_id": "small", "held_up": [told], "unaudited": gap}, {"agent_id": "older"}]}
    rows = rows_of(glance, learns=False)
    shown = text_of(StatusReport("amqp://guest@host/", None, (), depths(), True, (), **rows))

    assert "The fleet is healthy" in shown
    assert "small: v1.0.3 could not be validated: no scores; it is tried again from 12:00:30 UTC on" in shown
    assert f"small: {gap}" in shown
    assert [one["agent_id"] for one in rows["held_up"]] == ["small"]


def test_eighty_columns_hold_each_interval_in_one_piece() -> None:
    interval = {"mean": 0.5123, "low": 0.4012, "high": 0.6234}
    found = {"served": interval, "single": interval, "distinct": interval}
    console = Console(width=80, record=True)

    console.print(quality_table(({"agent_id": "assistant", "adapter_version": "v1.0.12"} | found,)))

    assert console.export_text().count("0.512 [0.401, 0.623]") == 3
