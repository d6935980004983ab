"""Each experiment on the page: both pictures, the arms side by side, and the verdict or what is missing for one."""

from __future__ import annotations

from ratchet.cli.report.experiment_charts import effect_chart, evidence_chart
from ratchet.cli.report.gathered import AgentReport
from ratchet.cli.report.markup import Markup, joined, tag
from ratchet.cli.report.notices import empty, older
from ratchet.experiments.records import RUNNING
from ratchet.experiments.view import ExperimentView
from schemas.records.evidence import ArmSummary, ExperimentDecision

TONES = {RUNNING: "warn", "promoted": "good", "settled": "good", "rolled_back": "bad", "aborted": "bad"}


def experiment_cards(agent: AgentReport) -> Markup:
    """The newest first."""
    if not agent.looks:
        return empty(
            "No experiment yet. One begins by itself once an adapter is trained and validated:", "ratchet train"
        )
    cards = [_card(look) for look in reversed(agent.looks)]
    return joined(*cards, older(agent.experiments_before, "experiments", "ratchet experiment list"))


def _card(look: ExperimentView) -> Markup:
    record = look.record
    return tag(
        "div",
        tag(
            "div",
            tag("h4", f"{record.running.treatment} against {record.running.control}"),
            tag("span", record.outcome.replace("_", " "), class_=f"pill {TONES.get(record.outcome, 'over')}"),
            class_="head",
        ),
        tag("p", f"{record.running.kind} {record.experiment_id} · {_when(look)}", class_="caption"),
        _pictures(look),
        tag("p", f"No picture: {look.trouble}", class_="trouble bad") if look.trouble else None,
        _arms(look, look.decision) if look.decision else None,
        _verdict(look),
        class_="card",
        id=f"experiment-{record.began.sequence}",
    )


def _pictures(look: ExperimentView) -> Markup | None:
    if look.plan is None or not look.history:
        return None if look.trouble else tag("p", "No unit has finished yet.", class_="note")
    running = look.record.running
    return tag(
        "div",
        tag(
            "div",
            tag(
                "p",
                "Difference in score over finished units; each end of the band holds at all times with "
                f"{1 - look.plan.alpha:.0%}",
                class_="caption",
            ),
            effect_chart(look.history, running.treatment, running.control),
        ),
        tag(
            "div",
            tag("p", "Evidence: e-values on a logarithmic scale", class_="caption"),
            evidence_chart(look.history, look.plan),
        ),
        class_="pair",
    )


def _arms(look: ExperimentView, decision: ExperimentDecision) -> Markup:
    evidence, running = decision.evidence, look.record.running
    names = ("arm", "units", "score", "success", "tokens", "latency")
    head = [tag("th", name, class_=None if name == "arm" else "n") for name in names]
    rows = [_arm(running.treatment, evidence.candidate), _arm(running.control, evidence.primary)]
    return tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="arms")


def _arm(version: str, arm: ArmSummary) -> Markup:
    latency = "–" if arm.latency_s is None else f"{arm.latency_s:.3f} s"
    cells = (f"{arm.units:,}", _number(arm.score, 3), _number(arm.success, 3), _number(arm.length, 1), latency)
    return tag("tr", tag("td", version), *(tag("td", cell, class_="n") for cell in cells))


def _verdict(look: ExperimentView) -> Markup | None:
    ended, decision = look.record.ended, look.decision
    if decision is None and ended is None:
        return None
    if decision is not None and (decision.verdict.final or ended is None):
        sentence, reason = decision.verdict.sentence, decision.reason
    else:
        sentence, reason = f"Ended by {ended.who}." if ended else "", ended.reason if ended else ""
    recorded = f" · decision {ended.sequence}" if ended else ""
    return tag("p", tag("b", sentence), f" {reason[:1].upper()}{reason[1:]}{recorded}", class_="verdict")


def _when(look: ExperimentView) -> str:
    began, ended = look.record.began.at, look.record.ended
    return f"{began:%Y-%m-%d %H:%M}" + (f" to {ended.at:%Y-%m-%d %H:%M} UTC" if ended else " UTC until now")


def _number(value: float | None, decimals: int) -> str:
    return "–" if value is None else f"{value:.{decimals}f}"
