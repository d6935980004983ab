"""The page: one HTML document that opens offline. Pure: a gathered report in, text out.

Its policy forbids scripts and whatever is loaded from elsewhere, so that not even a mistake in here lets a text act.
"""

from __future__ import annotations

from ratchet.cli.report.agent_section import agent_section
from ratchet.cli.report.gathered import Report
from ratchet.cli.report.markup import Markup, joined, tag
from ratchet.cli.report.style import COLOURED, STYLE

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(report: Report) -> str:
    title = "Ratchet report"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(STYLE + COLOURED)),
    )
    body = tag("body", tag("main", _header(report, title), *(agent_section(agent) for agent in report.agents)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _header(report: Report, title: str) -> Markup:
    said = f"{report.made_at:%Y-%m-%d %H:%M} UTC · {report.lines:,} scored samples in the log"
    links = [tag("a", agent.agent_id, href=f"#agent-{agent.agent_id}") for agent in report.agents]
    return tag(
        "header",
        tag("h1", title),
        tag("p", said),
        *(tag("p", trouble, class_="trouble bad") for trouble in report.troubles),
        tag("nav", *links) if len(links) > 1 else joined(),
    )
