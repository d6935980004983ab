"""Shows where an agent's programs stand: a line, and a table of those that were tried or chosen. Pure."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from schemas.api.programs import ProgramsStanding, ProgramView
from services.cli.adapters.view import STYLES
from services.cli.terminal import table


def render_standing(found: ProgramsStanding) -> Group:
    if not found.items:
        return Group(_headline(found))
    shown = table("program", "state", "alias", "since", "replaced", "revision", "experiments", left=7)
    for one in found.items:
        shown.add_row(
            one.name,
            Text(str(one.state), STYLES.get(one.state, "")),
            ", ".join(one.aliases),
            f"{one.since:%Y-%m-%d %H:%M:%S}",
            one.replaced or "",
            (one.revision or "")[:8],
            _ended(one),
        )
    return Group(_headline(found), shown)


def _headline(found: ProgramsStanding) -> Text:
    answers = f"{found.primary} answers by default" if found.primary else "samples are dealt to all programs"
    text = Text.assemble((found.agent_id, "bold"), f" · {answers}")
    if found.candidate:
        text.append(f" · {found.candidate} is tried", "yellow")
    if found.asked:
        text.append(f" · {found.asked} waits to be tried", "yellow")
    if experiment := found.experiment:
        text.append(f" · {experiment.kind} {experiment.experiment_id} at {experiment.share:.0%}")
    if found.cool_down_until:
        text.append(f" · cooling down until {found.cool_down_until:%Y-%m-%d %H:%M:%S}")
    return text


def _ended(one: ProgramView) -> str:
    return ", ".join(f"{outcome.kind} {outcome.verdict}" for outcome in one.outcomes)
