"""The part of the page on one agent: figures, scores, lineage, training, anchors; the rest is elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ratchet.cli.report.decision_table import decision_table
from ratchet.cli.report.experiment_cards import experiment_cards
from ratchet.cli.report.gathered import AgentReport
from ratchet.cli.report.line_chart import line_chart
from ratchet.cli.report.lineage_chart import TRUNK, lineage_chart, tone
from ratchet.cli.report.markup import Markup, joined, tag
from ratchet.cli.report.notices import empty, older
from ratchet.cli.report.score_charts import colour, timeline_chart, versions_chart
from ratchet.cli.report.score_stats import Z95
from ratchet.training_runs.report import TrainingReport
from schemas.messages.work import BASE_VERSION

CURVE_NAMES = {
    "loss": "loss",
    "entropy": "entropy",
    "effective_share": "effective sample size, share",
    "clip_fraction": "ratios clipped, share",
    "kl": "KL to the reference",
    "reward": "mean reward",
}


def agent_section(agent: AgentReport) -> Markup:
    return tag(
        "section",
        tag("h2", f"Agent {agent.agent_id}"),
        _tiles(agent),
        tag("h3", "Scores"),
        _scores(agent),
        tag("h3", "Lineage"),
        _lineage(agent),
        tag("h3", "Experiments"),
        experiment_cards(agent),
        tag("h3", "Training"),
        _training(agent.training),
        *_anchors(agent),
        tag("h3", "Decisions"),
        decision_table(agent),
        id=f"agent-{agent.agent_id}",
    )


def _tiles(agent: AgentReport) -> Markup:
    primary = agent.adapters.versions[agent.adapters.primary]
    outcomes = [look.record.outcome for look in agent.looks]
    frozen = "frozen · " if agent.adapters.frozen else ""
    return tag(
        "div",
        _tile(primary.version, f"{frozen}primary, {primary.state.value}", tone(primary.state)),
        _gain_tile(agent),
        _tile(f"{agent.scores.tasks:,}", f"tasks answered, {agent.scores.failed:,} without a score"),
        _tile(str(len(agent.entries) - 1 + agent.versions_before), "adapters trained"),
        _tile(f"{outcomes.count('promoted')} / {outcomes.count('rolled_back')}", "experiments promoted / rolled back"),
        class_="tiles",
    )


def _tile(figure: str, words: str, class_: str | None = None) -> Markup:
    return tag("div", tag("b", figure, class_=class_), tag("span", words), class_="tile")


def _gain_tile(agent: AgentReport) -> Markup:
    """Plain means of all live traffic. The proof is in the experiments."""
    base, now = agent.scores.live.get(BASE_VERSION), agent.scores.live.get(agent.adapters.primary)
    if now is None or base is None or agent.adapters.primary == BASE_VERSION:
        mean = agent.scores.live.get(agent.adapters.primary)
        return _tile("–" if mean is None else f"{mean.mean:.3f}", "mean live score of the primary")
    change = now.mean - base.mean
    margin = Z95 * math.hypot(base.error or 0.0, now.error or 0.0)
    words = f"live score over the base model's {base.mean:.3f} (± {margin:.3f})"
    return _tile(f"{change:+.3f}", words, "good" if change > margin else "bad" if change < -margin else None)


def _scores(agent: AgentReport) -> Markup:
    scores, versions = agent.scores, [entry.version for entry in agent.entries]
    if not (scores.live or scores.held_out):
        return empty("No answer has been scored yet:", 'ratchet submit "your task"')
    primaries = [entry.version for entry in agent.entries if entry.state in TRUNK]
    shown = [version for version in versions if any(version in period.shares for period in scores.timeline.periods)]
    keys = [tag("span", tag("i", class_=f"key {colour(version, versions)}"), version, class_="w") for version in shown]
    return tag(
        "div",
        tag(
            "div",
            tag("h4", "By version"),
            tag(
                "p",
                "● users' tasks (plain mean, 95 % interval), ◇ golden set; the proof is in the experiments",
                class_="caption",
            ),
            versions_chart(versions, scores.live, scores.held_out, primaries),
            class_="card",
        ),
        tag(
            "div",
            tag("h4", "Over time"),
            tag("p", "mean score by task; below: which version answered ", *_spaced(keys), class_="caption"),
            timeline_chart(scores.timeline.periods, versions) if scores.timeline.periods else None,
            class_="card",
        ),
        class_="pair",
    )


def _spaced(keys: Sequence[Markup]) -> list[str]:
    """With room for a line to break at between them."""
    return [part for key in keys for part in (key, " ")]


def _lineage(agent: AgentReport) -> Markup:
    if len(agent.entries) < 2:
        return empty("Only the base model so far. A first adapter is trained with", "ratchet train")
    return tag(
        "div",
        lineage_chart(agent.entries, agent.scores.live),
        older(agent.versions_before, "versions", "ratchet adapters list"),
        class_="card",
    )


def _training(runs: Sequence[TrainingReport]) -> Markup:
    told = [run for run in runs if run.curves or run.card]
    if not told:
        return empty("No training yet. Once enough answers are scored:", "ratchet train")
    return joined(*(_run(run) for run in reversed(told)))


def _run(run: TrainingReport) -> Markup:
    charts = [
        tag(
            "div",
            tag("p", f"{CURVE_NAMES[name]}, {points[-1][1]:.4g} at the end", class_="caption"),
            line_chart(points, name),
        )
        for name, points in run.curves.items()
    ]
    missing = tag("p", "No curves beside this adapter (training_report.json).", class_="note")
    return tag(
        "div",
        tag("h4", run.version),
        tag("p", _told(run), class_="caption"),
        tag("div", *charts, class_="triple") if charts else missing,
        class_="card",
    )


def _told(run: TrainingReport) -> str:
    parts: list[str] = []
    if card := run.card:
        parts += [f"{card.algorithm} from {card.parent}", f"{card.created:%Y-%m-%d %H:%M} UTC"]
        if card.data.samples:
            parts.append(f"{card.data.groups:,} groups, {card.data.samples:,} samples")
    parts += [f"{name.replace('_', ' ')} {value:,.10g}" for name, value in run.counts.items()]
    return " · ".join(parts)


def _anchors(agent: AgentReport) -> list[Markup]:
    runs = agent.scores.anchors
    if not runs:
        return []
    points = [(float(number), mean.mean) for number, (_, mean) in enumerate(runs, 1)]
    drift = f"{points[-1][1] - points[0][1]:+.3f} since the first time"
    caption = f"mean score of the same fixed answers, scored again and again, {drift}: a move is the scorer's"
    chart = line_chart(points, "mean score of the anchors", level=points[0][1])
    return [
        tag("h3", "Anchors"),
        tag("div", tag("p", caption, class_="caption"), tag("div", chart, class_="narrow"), class_="card"),
    ]
