"""The objectives that users' tasks are counted against; alerts compare the counts with the budgets (infra/prometheus).

Leaves out tasks that were refused at the door, and those that were cancelled: both are the user's doing.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.messages.result import ResultStatus
from services.orchestrator import metrics


@dataclass(frozen=True, slots=True)
class Objectives:
    """Shares of the tasks: answered at all (`availability`), and of these within `latency_s` (`latency`)."""

    availability: float
    latency: float
    latency_s: float

    def show_budgets(self) -> None:
        """Tell Prometheus which share may be missed. An objective without a budget never raises an alert."""
        metrics.objective_budget.labels("availability").set(1 - self.availability)
        if self.latency_s:
            metrics.objective_budget.labels("latency").set(1 - self.latency)

    def count(self, agent_id: str, status: ResultStatus, total_s: float) -> None:
        """Count a user's task that was closed `total_s` seconds after its admission."""
        if status == "cancelled":
            return
        metrics.count_objective(agent_id, "availability", missed=status != "ok")
        if status == "ok" and self.latency_s:
            metrics.count_objective(agent_id, "latency", missed=total_s > self.latency_s)
