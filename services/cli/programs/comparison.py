"""An agent's programs, how each stands and side by side, as tables that fit a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from schemas.api.programs import ProgramFigures, ProgramsCompared, ProgramsStanding
from schemas.api.status import Interval
from schemas.messages.reward import ScorerIdentity
from services.cli.adapters.view import STYLES
from services.cli.terminal import number, table

NONE_YET = (
    "No rollout of a program is in the log yet. Programs answer tasks once they are declared: ratchet up --programs "
    "examples/own-program/programs.toml"
)
SEVERAL_SCORERS = "Scores by different scorers, or revisions, can't be held against each other."
MOST_NAME = 26
"""Characters of a program's name; longer ones are folded."""


def comparison(found: ProgramsCompared) -> Group:
    shown: list[RenderableType] = []
    several = False
    for agent, of_agent in groupby(found.items, key=lambda one: one.agent_id):
        by_scorer = [(scorer, list(rows)) for scorer, rows in groupby(of_agent, key=lambda one: one.scorer)]
        several = several or len(by_scorer) > 1
        for scorer, rows in by_scorer:
            head = f"{agent}, scored by {_name_of_scorer(scorer, [one for one, _ in by_scorer])}"
            shown += [*([Text()] if shown else []), Text(head, style="bold"), _table(rows), *_below(rows)]
    if several:
        shown += [Text(), Text(SEVERAL_SCORERS, style="dim")]
    return Group(*shown)


def _name_of_scorer(scorer: ScorerIdentity | None, scorers: Sequence[ScorerIdentity | None]) -> str:
    """Return the name of a scorer, with its revision if there is another of this name."""
    if scorer is None:
        return "nobody that gave a name"
    alike = [one for one in scorers if one is not None and one.id == scorer.id]
    if len(alike) == 1:
        return scorer.id
    return " ".join(filter(None, (scorer.id, scorer.revision, scorer.rubric_sha256 and scorer.rubric_sha256[:8])))


def _table(rows: Sequence[ProgramFigures]) -> Table:
    shown = table("program", "rollouts", "score", "tokens", "calls", "seconds")
    shown.columns[0].max_width, shown.columns[0].overflow = MOST_NAME, "fold"
    for one in rows:
        shown.add_row(
            Text(one.program),
            f"{one.rollouts:,}",
            _interval(one.score),
            number(one.sampled_tokens, ",.0f"),
            number(one.calls, ",.1f"),
            number(one.seconds, ",.2f"),
        )
    return shown


def _below(rows: Sequence[ProgramFigures]) -> Iterator[Text]:
    """Show how they ended, and what split their conversations; nothing of those that all ended by themselves,
    unsplit."""
    for one in rows:
        ended = _counts(one.ended) if set(one.ended) - {"finished"} else ""
        breaks = f"breaks: {_counts(one.breaks)}" if one.breaks else ""
        if said := "; ".join(filter(None, (ended, breaks))):
            yield Text(f"{one.program}: {said}", style="dim")


def _interval(score: Interval | None) -> str:
    if score is None:
        return "–"
    return f"{score.mean:.3f}" + (f" ± {score.high - score.mean:.3f}" if score.high is not None else "")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


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
            ", ".join(f"{outcome.kind} {outcome.verdict}" for outcome in one.outcomes),
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
