"""One line about the running experiment. Pure."""

from __future__ import annotations

from ratchet.cli.demo.adapter_status import AdapterStatus, ExperimentStatus

NAMES = {"gain": "a gain", "success_kept": "success kept", "harm": "harm"}


def experiment_line(adapter_status: AdapterStatus) -> tuple[str, object]:
    """The line, and what it is about: where that changes, something happened."""
    running = adapter_status.adapters.experiment
    if running is None or adapter_status.experiment is None:
        return f"the primary is {adapter_status.adapters.primary}", adapter_status.adapters.primary
    kind = "canary" if running.kind == "canary" else "probation"
    text = f"{kind}: {running.treatment} against {running.control}, {_figures(adapter_status.experiment)}"
    return text, (running.experiment_id, adapter_status.experiment.share)


def _figures(experiment: ExperimentStatus) -> str:
    treatment, control = experiment.units.get("treatment", 0), experiment.units.get("control", 0)
    shown = ", ".join(f"{NAMES[test]} {e_text(experiment.e_values.get(test, 1.0))}" for test in NAMES)
    evidence = f"evidence ({experiment.threshold:g} decides): {shown}"
    return f"share {experiment.share:.0%}, {treatment} + {control} tasks, {evidence}"


def e_text(value: float) -> str:
    """An e-value with two or three figures."""
    return f"{value:.1f}" if value < 10_000 else f"{value:.0e}"
