"""An agent's programs side by side, as a table."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from ratchet.cli.terminal import table
from schemas.api.programs import ProgramsCompared
from schemas.api.status import Interval

NONE_YET = (
    "No rollout of a program is in the log yet. Programs answer tasks once they are declared: ratchet up --programs "
    "examples/own-program/programs.toml"
)


def comparison(found: ProgramsCompared) -> Table:
    shown = table("agent", "program", "rollouts", "score", "tokens", "calls", "seconds", "ended", "breaks", left=2)
    for one in found.items:
        shown.add_row(
            one.agent_id,
            one.program,
            f"{one.rollouts:,}",
            _interval(one.score),
            _number(one.sampled_tokens, "{:,.0f}"),
            _number(one.calls, "{:,.1f}"),
            _number(one.seconds, "{:,.2f}"),
            _counts(one.ended),
            _counts(one.breaks),
        )
    return shown


def _interval(score: Interval | None) -> str:
    if score is None:
        return "–"
    return f"{score.mean:.3f}" + (f" ± {score.high - score.mean:.3f}" if score.high is not None else "")


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "–"
