"""`ratchet label`: a person says how good answers are, blind to version and score; and how far the scorers agree."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import httpx
import typer
from rich.table import Table

from services.cli.fleet.api_client import FleetToken, FleetUrl, api_client, call_api
from services.cli.terminal import AsJson, number, out, print_json, say, table

PAIR = "better: 1 or 2, = as good · s skip · q quit"
SINGLE = "how good: 0 useless … 10 as good as can be · s skip · q quit"
SKIP, QUIT = "s", "q"
BETTER_FIRST = {"1": 1.0, "2": 0.0, "=": 0.5}

Ask = Callable[[str], str]


def label(
    pairs: Annotated[bool, typer.Option("--pairs", help="Two answers at a time: which is better.")] = False,
    agent: Annotated[str | None, typer.Option(help="Only this agent's answers.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Show how far scorer, auditor and people agree.")] = False,
    json: AsJson = False,
    url: FleetUrl = None,
    token: FleetToken = None,
) -> None:
    """Labels change nothing: no training and no experiment reads them."""
    with api_client("orchestrator", url, token) as client:
        if report or json:
            _report(call_api(client, "GET", "/v1/agreement"), as_json=json)
        else:
            count = ask_for_labels(client, _ask, pairs=pairs, agent=agent)
            say(f"{count} labelled. `ratchet label --report` shows how far scorer and auditor agree with people.")


def ask_for_labels(client: httpx.Client, ask: Ask, *, pairs: bool, agent: str | None) -> int:
    """One after the other, until nothing is left or the person has had enough. Returns how many were labelled."""
    count = skipped = 0
    while True:
        query = {"pairs": pairs, "skip": skipped} | ({"agent_id": agent} if agent else {})
        found = call_api(client, "GET", "/v1/labels/next", params=query)["found"]
        if found is None:
            say("Nothing is left to label: the newest answers are, or none were given yet.")
            return count
        _show(found)
        score = _score(ask, pairs=pairs)
        if score is None:
            return count
        if score == SKIP:
            skipped += 1
            continue
        samples = [answer["sample"] for answer in found["answers"]]
        given = {"task_id": found["task_id"], "sample": samples[0], "score": score, "label_id": f"label-{uuid.uuid4()}"}
        call_api(client, "POST", "/v1/labels", json=given | ({"other": samples[1]} if pairs else {}))
        count += 1


def _score(ask: Ask, *, pairs: bool) -> float | str | None:
    """The score, SKIP, or None for enough."""
    while True:
        said = ask(PAIR if pairs else SINGLE).strip().lower()
        if said in (QUIT, SKIP):
            return SKIP if said == SKIP else None
        if pairs and said in BETTER_FIRST:
            return BETTER_FIRST[said]
        if not pairs and said.isdigit() and int(said) <= 10:
            return int(said) / 10


def _show(found: Mapping[str, Any]) -> None:
    asked = found["input"]
    text = asked if isinstance(asked, str) else "\n".join(f"{one['role']}: {one['content']}" for one in asked)
    out.print(f"\n[bold]{'─' * 60}[/bold]")
    out.print(text, markup=False)
    for name in ("criteria", "reference"):
        if found[name]:
            out.print(f"{name}: {found[name]}", style="dim", markup=False)
    for place, answer in enumerate(found["answers"], start=1):
        out.print(f"\n{f'answer {place}' if len(found['answers']) > 1 else 'answer'}", style="cyan")
        out.print(answer["text"], markup=False)


def _ask(question: str) -> str:
    try:
        return input(f"\n{question}: ")
    except EOFError:
        return QUIT


def _report(agreement: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(agreement)
        return
    for agent in agreement["items"]:
        out.print(f"[bold]{agent['agent_id']}[/bold] · auditor {agent['auditor'] or 'none'}")
        if latest := agent["latest"]:
            judge, auditor = number(latest["judge"], ".3f"), number(latest["auditor"], ".3f")
            out.print(
                f"  newest {latest['tasks']} audits: scorer {judge}, auditor {auditor}; "
                f"they order two answers differently in {number(latest['discordance'], '.0%')}"
            )
        out.print(_calibrations(agent))


def _calibrations(agent: Mapping[str, Any]) -> Table:
    shown = table("beside people", "labels", "rank correlation", "kappa", "likes length", "likes late ones", left=1)
    for who in ("judge", "auditor"):
        for kind in ("answers", "pairs"):
            one = agent[f"{who}_by_{kind}"]
            figures = (_estimate(one[name]) for name in ("rank", "kappa", "by_length", "by_position"))
            shown.add_row(f"{'scorer' if who == 'judge' else who}, {kind}", str(one["labels"]), *figures)
    return shown


def _estimate(one: Mapping[str, float] | None) -> str:
    return "–" if one is None else f"{one['value']:+.2f} ({one['low']:+.2f} … {one['high']:+.2f})"
