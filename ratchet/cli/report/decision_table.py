"""All decisions on an agent's adapters, the newest first: what, why, by whom, and on which evidence."""

from __future__ import annotations

import json

from ratchet.cli.report.gathered import AgentReport
from ratchet.cli.report.markup import Markup, tag
from ratchet.cli.report.notices import older
from schemas.records.decision import Decision

COLUMNS = ("#", "when", "move", "version", "by", "reason and evidence")


def decision_table(agent: AgentReport) -> Markup:
    if not agent.decisions:
        return tag("div", tag("p", "Nothing has been decided yet.", class_="empty"), class_="card")
    head = tag("thead", tag("tr", *(tag("th", name) for name in COLUMNS)))
    rows = [_row(decision) for decision in reversed(agent.decisions)]
    note = older(agent.decisions_before, "decisions", "ratchet adapters history")
    return tag("div", tag("table", head, tag("tbody", *rows)), note, class_="card")


def _row(decision: Decision) -> Markup:
    return tag(
        "tr",
        tag("td", str(decision.sequence), class_="w"),
        tag("td", f"{decision.at:%Y-%m-%d %H:%M:%S}", class_="w"),
        tag("td", decision.move.kind.replace("_", " "), class_="w"),
        tag("td", _version(decision), class_="w"),
        tag("td", decision.who, class_="who"),
        tag("td", decision.reason, _evidence(decision)),
    )


def _version(decision: Decision) -> str:
    experiment = getattr(decision.move, "experiment", None)
    return str(getattr(decision.move, "version", experiment.treatment if experiment else "–"))


def _evidence(decision: Decision) -> Markup:
    move = decision.move.model_dump(mode="json", exclude_none=True)
    content = {"move": move, "evidence": decision.evidence, "sha256": decision.sha256}
    shown = json.dumps(content, indent=1, ensure_ascii=False)
    return tag("details", tag("summary", "evidence"), tag("pre", shown))
