"""What counts for an objective, and what misses it."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from schemas.messages.result import ResultStatus
from services.orchestrator.metrics import Objectives

SHARES = {"availability": 0.99, "latency": 0.95}


def _counts(agent: str) -> dict[str, tuple[float | None, float | None]]:
    def value(name: str, objective: str) -> float | None:
        return REGISTRY.get_sample_value(f"ratchet_objective_{name}_total", {"agent": agent, "objective": objective})

    return {one: (value("tasks", one), value("missed", one)) for one in ("availability", "latency")}


@pytest.mark.parametrize(
    ("status", "seconds", "availability", "latency"),
    [
        ("ok", 9.0, (1, 0), (1, 0)),
        ("ok", 11.0, (1, 0), (1, 1)),
        ("failed", 1.0, (1, 1), (None, None)),
        ("expired", 3600.0, (1, 1), (None, None)),
        ("cancelled", 1.0, (None, None), (None, None)),
    ],
)
def test_a_task_counts_by_how_it_ended_and_when(
    status: ResultStatus, seconds: float, availability: tuple[float | None, ...], latency: tuple[float | None, ...]
) -> None:
    agent = f"{status} after {seconds}"

    Objectives(**SHARES, latency_s=10).count(agent, status, seconds)

    assert _counts(agent) == {"availability": availability, "latency": latency}


def test_without_a_limit_there_is_no_objective_of_latency() -> None:
    Objectives(**SHARES, latency_s=0).count("slow", "ok", 1e6)

    assert _counts("slow") == {"availability": (1, 0), "latency": (None, None)}


def test_the_budget_is_what_the_objective_leaves() -> None:
    Objectives(**SHARES, latency_s=10).show_budgets()

    found = {one: REGISTRY.get_sample_value("ratchet_objective_budget", {"objective": one}) for one in SHARES}
    assert found == {"availability": pytest.approx(0.01), "latency": pytest.approx(0.05)}
