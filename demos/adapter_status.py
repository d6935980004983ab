"""Tells how an agent's adapters stand while the demo waits: the registry's word, the orchestrator's live figures, a
line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ratchet.adapters.registry import RegistryStore
from schemas.records.registry import AgentAdapters
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.service_http import metrics_text
from services.cli.watch.figures import Series, parse_series


@dataclass(frozen=True, slots=True)
class ExperimentStatus:
    """The figures of the running experiment. `units`: finished tasks by arm; `e_values` by test; `threshold`
    decides."""

    share: float
    units: Mapping[str, int]
    e_values: Mapping[str, float]
    threshold: float


@dataclass(frozen=True, slots=True)
class AdapterStatus:
    adapters: AgentAdapters
    experiment: ExperimentStatus | None = None
    trainings: Mapping[str, int] = field(default_factory=dict)
    """Runs that ended so far, by how."""
    swap_s: float | None = None
    """Seconds that the latest change of the primary took."""

    def state(self, version: str) -> str | None:
        entry = self.adapters.versions.get(version)
        return entry.state.value if entry else None


@dataclass(frozen=True, slots=True)
class AdapterStatusReader:
    """Asks; keeps nothing."""

    access: FleetAccess
    store: RegistryStore
    agent_id: str

    def __call__(self) -> AdapterStatus:
        """Raises RegistryError. Where the orchestrator does not answer, only the registry is known."""
        adapters = self.store.read().agent(self.agent_id)
        port = self.access.record.port_of("orchestrator") if self.access.record else None
        text = metrics_text(port) if port else None
        return adapter_status(adapters, parse_series([text] if text else []), self.agent_id)


def adapter_status(adapters: AgentAdapters, series: Series, agent_id: str) -> AdapterStatus:
    swap = series.get(("ratchet_swap_seconds", (("agent", agent_id),)))
    return AdapterStatus(
        adapters=adapters,
        experiment=_experiment(adapters, series, agent_id),
        trainings={key: int(n) for key, n in _by(series, "ratchet_trainings_total", agent_id, "status").items()},
        swap_s=swap or None,
    )


def _experiment(adapters: AgentAdapters, series: Series, agent_id: str) -> ExperimentStatus | None:
    of_agent = (("agent", agent_id),)
    share = series.get(("ratchet_experiment_share", of_agent))
    threshold = series.get(("ratchet_experiment_threshold", of_agent))
    if adapters.experiment is None or share is None or threshold is None:
        return None
    units = _by(series, "ratchet_experiment_units", agent_id, "arm")
    return ExperimentStatus(
        share=share,
        units={arm: int(count) for arm, count in units.items()},
        e_values=_by(series, "ratchet_experiment_e_value", agent_id, "test"),
        threshold=threshold,
    )


def _by(series: Series, name: str, agent_id: str, label: str) -> dict[str, float]:
    """The agent's series of this name, by the value of its other label."""
    found = ((dict(labels), value) for (sample, labels), value in series.items() if sample == name)
    return {labels[label]: value for labels, value in found if labels.get("agent") == agent_id}


NAMES = {"gain": "a gain", "success_kept": "success kept", "harm": "harm"}


def experiment_line(adapter_status: AdapterStatus) -> tuple[str, object]:
    """The line, and what it is about: where that changes, something happened."""
    running = adapter_status.adapters.experiment
    if running is None or adapter_status.experiment is None:
        return f"the primary is {adapter_status.adapters.primary}", adapter_status.adapters.primary
    treatment, control = running.arms
    text = f"{running.kind}: {treatment} against {control}, {_figures(adapter_status.experiment)}"
    return text, (running.experiment_id, adapter_status.experiment.share)


def _figures(experiment: ExperimentStatus) -> str:
    treatment, control = experiment.units.get("treatment", 0), experiment.units.get("control", 0)
    shown = ", ".join(f"{NAMES[test]} {e_text(experiment.e_values.get(test, 1.0))}" for test in NAMES)
    evidence = f"evidence ({experiment.threshold:g} decides): {shown}"
    return f"share {experiment.share:.0%}, {treatment} + {control} tasks, {evidence}"


def e_text(value: float) -> str:
    """An e-value with two or three figures."""
    return f"{value:.1f}" if value < 10_000 else f"{value:.0e}"
