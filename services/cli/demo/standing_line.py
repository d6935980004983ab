"""One line about the running experiment. Pure."""

from __future__ import annotations

from services.cli.demo.standing import ExperimentStanding, Standing

NAMES = {"gain": "a gain", "success_kept": "success kept", "harm": "harm"}


def experiment_line(standing: Standing) -> tuple[str, object]:
    """The line, and what it is about: where that changes, something happened."""
    running = standing.adapters.experiment
    if running is None or standing.experiment is None:
        return f"the primary is {standing.adapters.primary}", standing.adapters.primary
    kind = "canary" if running.kind == "canary" else "probation"
    text = f"{kind}: {running.treatment} against {running.control}, {_figures(standing.experiment)}"
    return text, (running.experiment_id, standing.experiment.share)


def _figures(experiment: ExperimentStanding) -> str:
    treatment, control = experiment.units.get("treatment", 0), experiment.units.get("control", 0)
    shown = ", ".join(f"{NAMES[test]} {e_text(experiment.e_values.get(test, 1.0))}" for test in NAMES)
    return f"share {experiment.share:.0%}, {treatment} + {control} tasks, evidence (20 decides): {shown}"


def e_text(value: float) -> str:
    """An e-value with two or three figures."""
    return f"{value:.1f}" if value < 10_000 else f"{value:.0e}"
