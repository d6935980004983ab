"""Adapters, their decisions and their differences as tables. Pure: records in, something rich can print out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ratchet.adapters.decisions import program_of, version_of
from schemas.api.status import HeldUp
from schemas.records.adapter_card import AdapterCard
from schemas.records.decision import Decision
from schemas.records.registry import AdapterEntry, AgentAdapters, EntryState
from services.cli.terminal import Listing, table

if TYPE_CHECKING:
    from ratchet.adapters.diff import AdapterDiff, ModuleChange

STYLES = {
    EntryState.STABLE: "bold green",
    EntryState.CANARY: "yellow",
    EntryState.ASKED: "yellow",
    EntryState.ROLLED_BACK: "red",
    EntryState.REJECTED: "red",
    EntryState.ARCHIVED: "dim",
}
DECIMALS = 4
NAMES = 16


def render_agent(agent_id: str, agent: AgentAdapters) -> Group:
    """Its aliases in a line, its versions in a table, the newest last."""
    shown = table("version", "state", "alias", "since", "parent", "sha256", left=6, wraps=())
    for entry in agent.versions.values():
        state = Text(str(entry.state), STYLES.get(entry.state, ""))
        gone = "folder removed" if entry.sha256 else "never registered"
        sha256 = (entry.sha256 or "")[:8] if entry.can_serve else gone
        shown.add_row(
            entry.version, state, _alias(agent, entry.version), _moment(entry.since), entry.parent or "", sha256
        )
    return Group(_headline(agent_id, agent), shown)


def render_entry(
    agent: AgentAdapters,
    entry: AdapterEntry,
    card: AdapterCard | None,
    decisions: Iterable[Decision] = (),
    *,
    held_up: HeldUp | None = None,
    whole: bool = True,
) -> RenderableType:
    """All there is to know of one version. `decisions`: with the one that brought it into its state.

    `held_up`: where the orchestrator says that it gets no further. `whole`: with its hyperparameters, and numbers to
    the last digit.
    """
    because = next((one.reason for one in decisions if one.sequence == entry.decision), None)
    rows: list[tuple[str, Any]] = [
        ("version", entry.version),
        ("state", f"{entry.state}: {held_up.sentence if held_up else entry.state.sentence}"),
        ("because", because),
        ("alias", _alias(agent, entry.version)),
        ("since", f"{_moment(entry.since)} (decision {entry.decision})" if entry.since else ""),
        ("parent", entry.parent),
        ("sha256", entry.sha256),
        ("folder", entry.folder),
    ]
    if since := entry.since_base:
        sizes = f"length ×{since.length:.2f}, latency ×{since.latency:.2f}"
        rows.append(("since v1.0.0", f"score {since.score:+.3f}, success {since.success:+.3f}, {sizes}"))
    rows += [
        (f"{outcome.kind}", f"{outcome.experiment_id}: {outcome.verdict} (decision {outcome.decision})")
        for outcome in entry.outcomes
    ]
    if card:
        rows += [(field, value) for field, value in _card_rows(card) if value not in (None, {}, [])]
    shown = Table(box=None, show_header=False, pad_edge=False)
    shown.add_column(min_width=NAMES, no_wrap=True)
    shown.add_column(overflow="fold")
    for name, value in rows:
        if value:
            shown.add_row(name, Text(_format_value(value) if whole else _in_short(name, value, entry.version)))
    return shown


def render_diff(diff: AdapterDiff, before: str, after: str) -> RenderableType:
    if not diff.fields and not diff.modules and not diff.note:
        return Text(f"{before} and {after} do not differ.")
    fields = table("", "field", before, after, left=4, wraps=("field",))
    for change in diff.fields:
        fields.add_row(change.section, change.field, _format_value(change.before), _format_value(change.after))
    if diff.note:
        return Group(fields, Text(), Text(diff.note, "dim"))
    modules = table("module", f"‖dW‖ {before}", f"‖dW‖ {after}", "‖change‖", "cosine", wraps=())
    for module in diff.modules:
        modules.add_row(*_module_row(module))
    return Group(fields, Text(), modules)


def render_decisions(decisions: Iterable[Decision]) -> Listing:
    """The reason below each, where the terminal has no room beside it."""
    listing = Listing("#", "when", "agent", "move", "version", "by", "reason")
    for decision in decisions:
        listing.add(
            str(decision.sequence),
            _moment(decision.at),
            decision.agent_id,
            decision.move.kind,
            version_of(decision) or program_of(decision) or "",
            decision.who,
            decision.reason,
        )
    return listing


def _headline(agent_id: str, agent: AgentAdapters) -> Text:
    text = Text.assemble((agent_id, "bold"), f" · primary {agent.primary}")
    if agent.candidate:
        text.append(f" · candidate {agent.candidate}", "yellow")
    if experiment := agent.experiment:
        text.append(f" · {experiment.kind} {experiment.experiment_id} at {experiment.share:.0%}")
    if agent.programs.primary:
        text.append(f" · program {agent.programs.primary}")
    if watch := agent.watch:
        text.append(f" · {watch.arms[0]} watched beside {watch.arms[1]}", "dim")
    if agent.cool_down_until:
        text.append(f" · cooling down until {_moment(agent.cool_down_until)}")
    if agent.frozen:
        text.append(f" · FROZEN by {agent.frozen.who} since {_moment(agent.frozen.since)}", "bold red")
        text.append(f" ({agent.frozen.reason})")
    return text


def _alias(agent: AgentAdapters, version: str) -> str:
    aliases = {"primary": agent.primary, "candidate": agent.candidate, "previous": agent.previous}
    return ", ".join(name for name, held in aliases.items() if held == version)


def _card_rows(card: AdapterCard) -> list[tuple[str, Any]]:
    content = card.model_dump(mode="json")
    data, base = content["data"], content["base"]
    return [
        ("base model", f"{base['name']}@{(base['revision'] or 'unknown')[:12]}"),
        ("algorithm", card.algorithm),
        ("training run", card.run_id),
        ("created", _moment(card.created)),
        ("data", f"{data['groups']:,} groups, {data['samples']:,} samples" if data["samples"] else None),
        *(("data range", f"{r['log']} bytes {r['start']:,}–{r['end']:,}, {r['sha256'][:8]}…") for r in data["ranges"]),
        ("hyperparameters", content["hyperparameters"]),
        ("metrics", content["metrics"]),
    ]


def _module_row(module: ModuleChange) -> tuple[str, ...]:
    cosine = "–" if module.cosine is None else f"{module.cosine:.3f}"
    norms = (module.norm_before, module.norm_after, module.norm_change)
    return module.module, *(f"{norm:.{DECIMALS}g}" for norm in norms), cosine


def _format_value(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _in_short(name: str, value: Any, version: str) -> str:
    if name == "hyperparameters":
        return f"{len(value)}: ratchet adapters show {version} --all"
    if not isinstance(value, dict):
        return _format_value(value)
    return "  ".join(f"{key} {_format_rounded(one)}" for key, one in value.items())


def _format_rounded(value: Any) -> str:
    return f"{value:.{DECIMALS}g}" if isinstance(value, float) else _format_value(value)


def _moment(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment else ""
