"""`ratchet cascade`: the share that a small model answers in place of a big one, what it saves, and the proof."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ratchet.adapters.decisions import DecisionLedger
from ratchet.adapters.registry import RegistryStore
from ratchet.experiments.cascade_trial import read_pairs, read_routed, replay_decision
from ratchet.service.settings import FleetSettings
from schemas.records.cascade import CascadeState
from schemas.records.decision import MoveCascade
from services.cli.fleet.api_client import FleetToken, FleetUrl, api_client, call_api
from services.cli.terminal import AsJson, ExitCode, out, print_json, print_raw

BY_PROOF = ("raise", "fall")


@dataclass(frozen=True, slots=True)
class ReplayedMove:
    """A decision, and what the logs lead to. `again`: None where they lead to no move."""

    sequence: int
    agent_id: str
    cause: str
    again: str | None
    e: float | None
    e_again: float | None

    @property
    def holds(self) -> bool:
        return self.again == self.cause and self.e == self.e_again

    @property
    def sentence(self) -> str:
        said = f"decision {self.sequence}, {self.agent_id}: {self.cause}"
        if self.holds:
            return f"{said}: the same again, e = {self.e:.4g}"
        return f"{said} at e = {self.e}; the logs give {self.again} at e = {self.e_again}"


def replayed_moves(ledger: DecisionLedger, logs_dir: Path, agent_id: str | None = None) -> Iterator[ReplayedMove]:
    """Raises RegistryError, JournalError."""
    states: dict[str, CascadeState] = {}
    for decision, _ in ledger.read():
        move = decision.move
        if not isinstance(move, MoveCascade):
            continue
        before = states.get(decision.agent_id)
        states[decision.agent_id] = move.state
        if before is None or move.cause not in BY_PROOF or agent_id not in (None, decision.agent_id):
            continue
        test = "not_worse" if move.cause == "raise" else "worse"
        routed, pairs = read_routed(logs_dir, decision.agent_id, before), read_pairs(logs_dir, before)
        again, trial = replay_decision(before, routed, pairs, move.state.order)
        by = trial.cascade.decided_by
        logged = decision.evidence.get(test)
        yield ReplayedMove(
            decision.sequence,
            decision.agent_id,
            move.cause,
            again,
            float(logged) if isinstance(logged, int | float) else None,
            getattr(by, test) if again is not None and by is not None else None,
        )


def cascade_lines(view: Mapping[str, Any]) -> list[str]:
    """`view`: a CascadeView as JSON."""
    small, big, evidence = view["agent_id"], view["big"], view["evidence"]
    answered = view["answered_by_small"] + view["answered_by_big"]
    share = view["share_answered"]
    frozen = "; frozen" if view["frozen"] else ""
    lines = [
        f"{small}: may answer {view['share']:.0%} of the tasks in place of {big}{frozen}",
        f"  answered: {view['answered_by_small']:,} of {answered:,}"
        + (f" ({share:.0%})" if share is not None else "")
        + (f", {view['in_place']:,} only because {big} did not" if view["in_place"] else ""),
        f"  cost: {small} {view['small_cost']:,.4g}, {big} {view['big_cost']:,.4g}"
        + (
            f"; {big} alone would have cost {view['big_alone']:,.4g}: {view['saved']:,.4g} saved"
            if view["big_alone"] is not None
            else ""
        ),
    ]
    if view["daily_cap"] is not None:
        lines.append(f"  today: {view['spent_today']:,.4g} of {view['daily_cap']:,.4g}")
    lines.append(
        f"  evidence: {evidence['units']:,} units, {evidence['audited']:,} audited, mean difference "
        f"{evidence['difference']:+.4f}; "
        + (
            f"for {view['next_share']:.0%} e = {evidence['not_worse']:.3g} of {evidence['raise_at']:.3g}, "
            if view["next_share"] is not None
            else ""
        )
        + f"for harm e = {evidence['worse']:.3g} of {evidence['fall_at']:.3g}"
    )
    return lines


cascade = typer.Typer()

Agent = Annotated[str, typer.Argument(help="The agent in whose place a big model answers.")]
Reason = Annotated[str, typer.Option(help="Why; it is kept with the decision.")]
NONE = "No cascade. RATCHET_CASCADE=small=big begins one: docs/cascade.md"


@cascade.command()
def show(json: AsJson = False, url: FleetUrl = None, token: FleetToken = None) -> None:
    """Show who answers how much, what that costs and saves, and the evidence for the next step."""
    with api_client("orchestrator", url, token) as client:
        found = call_api(client, "GET", "/v1/cascades")["items"]
    if json:
        print_json(found)
        return
    for one in found:
        _print(one)
    if not found:
        out.print(NONE)


@cascade.command()
def freeze(agent: Agent, reason: Reason, json: AsJson = False, url: FleetUrl = None, token: FleetToken = None) -> None:
    """Stop the small model's share from rising; where it is proved to do harm it still falls."""
    _post(agent, "freeze", {"reason": reason}, json, url, token)


@cascade.command()
def unfreeze(
    agent: Agent, reason: Reason, json: AsJson = False, url: FleetUrl = None, token: FleetToken = None
) -> None:
    """Let the small model's share rise again by proof."""
    _post(agent, "unfreeze", {"reason": reason}, json, url, token)


@cascade.command("set")
def set_(
    agent: Agent,
    share: Annotated[float, typer.Argument(help="0, 0.1, 0.2, 0.4, 0.8 or 1.")],
    reason: Reason,
    json: AsJson = False,
    url: FleetUrl = None,
    token: FleetToken = None,
) -> None:
    """Set the small model's share by hand, without a proof; the evidence begins anew."""
    _post(agent, "share", {"share": share, "reason": reason}, json, url, token)


@cascade.command()
def replay(
    agent: Annotated[str | None, typer.Argument(help="Only this agent's.")] = None, json: AsJson = False
) -> None:
    """Make each move of a share again from the logs of this folder. Exit code 1 if one comes out otherwise."""
    settings = FleetSettings.read()
    found = list(replayed_moves(RegistryStore(settings.adapters_dir).ledger, settings.logs_dir, agent))
    if json:
        print_json([asdict(one) for one in found])
    for one in () if json else found:
        print_raw(one.sentence)
    if not found and not json:
        out.print("No share was moved by proof.")
    if not all(one.holds for one in found):
        raise typer.Exit(ExitCode.FAILED)


def _post(agent: str, what: str, body: Mapping[str, Any], json: bool, url: str | None, token: str | None) -> None:
    with api_client("orchestrator", url, token) as client:
        view = call_api(client, "POST", f"/v1/cascades/{agent}/{what}", json=body)
    if json:
        print_json(view)
    else:
        _print(view)


def _print(view: Mapping[str, Any]) -> None:
    for line in cascade_lines(view):
        print_raw(line)
