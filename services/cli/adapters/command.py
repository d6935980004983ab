"""`ratchet adapters`: see the versions of the adapters, and move them by hand where a person knows better."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ratchet.adapters.decisions import DecisionLedger, version_of
from ratchet.adapters.diff import diff_adapters
from ratchet.adapters.evaluations import evaluations_of
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.manifest import read_card
from ratchet.adapters.operator_service import OperatorService, chosen_agents
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.signatures import Signing
from ratchet.adapters.verification import verify_registry
from ratchet.service.errors import NotFound
from ratchet.service.settings import FleetSettings
from schemas.records.decision import DecisionDraft, Freeze, SignWith, Trust, Unfreeze
from schemas.records.registry import Registry
from services.cli.adapters.export import export
from services.cli.adapters.here import Agent, Reason, Version, operator, operator_service_here
from services.cli.adapters.view import render_agent, render_decisions, render_diff, render_entry
from services.cli.eval.view import render_evaluation
from services.cli.fleet.folder import FleetFolder
from services.cli.fleet.service_http import at_a_glance, held_up
from services.cli.terminal import AsJson, CommandError, ExitCode, out, print_json

adapters = typer.Typer()
adapters.command()(export)


@adapters.command("list")
def list_(agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None, json: AsJson = False) -> None:
    """List each agent's versions, where they stand, and which one answers."""
    settings = FleetSettings.read()
    registry = RegistryStore.from_settings(settings).read()
    names = chosen_agents(settings.agents, registry, agent)
    if json:
        print_json({name: registry.agent(name).model_dump(mode="json") for name in names})
        return
    for name in names:
        out.print(render_agent(name, registry.agent(name)))


@adapters.command()
def show(
    version: Version,
    agent: Agent = None,
    all_: Annotated[
        bool, typer.Option("--all", help="With its hyperparameters, and numbers to the last digit.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show one version: state, lineage, what it was trained on, how its experiments ended, what was decided on it."""
    service = operator_service_here(agent)
    if (entry := service.agent.versions.get(version)) is None:
        raise NotFound(f"agent {service.agent_id} has no version {version!r}: ratchet adapters list")
    card = read_card(service.store.folder / entry.folder) if entry.folder else None
    told = {entry.decision, *(outcome.decision for outcome in entry.outcomes)}
    about = [
        decision
        for decision, _ in service.store.ledger.read()
        if decision.agent_id == service.agent_id and (version_of(decision) == version or decision.sequence in told)
    ]
    evaluations = evaluations_of(service.store.folder, service.agent_id, version)
    held = held_up(at_a_glance(FleetFolder.here().record()))
    why = next((one for agent_id, one in held if (agent_id, one.name) == (service.agent_id, version)), None)
    if json:
        shown: dict[str, Any] = {"entry": entry.model_dump(mode="json"), "card": card and card.model_dump(mode="json")}
        shown |= {"evaluations": [one.model_dump(mode="json") for one in evaluations]}
        shown |= {"held_up": why and why.model_dump(mode="json")}
        print_json(shown | {"decisions": [decision.model_dump(mode="json") for decision in about]})
        return
    out.print(render_entry(service.agent, entry, card, about, held_up=why, whole=all_))
    for evaluation in evaluations:
        out.print(render_evaluation(evaluation))
    if about:
        out.print(render_decisions(about))


@adapters.command()
def diff(before: Version, after: Version, agent: Agent = None, json: AsJson = False) -> None:
    """Compare two versions: card, data, hyperparameters, metrics, and how much each module's update changed."""
    service = operator_service_here(agent)
    changes = diff_adapters(service.folder(before), service.folder(after))
    print_json(asdict(changes)) if json else out.print(render_diff(changes, before, after))


@adapters.command()
def history(
    count: Annotated[int, typer.Option("-n", min=1, help="How many, the newest.")] = 20,
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None,
    json: Annotated[bool, typer.Option("--json", help="The decisions as they are in the ledger.")] = False,
) -> None:
    """Show the newest decisions: what, when, by whom and why. With --json also the evidence."""
    entries = DecisionLedger(FleetSettings.read().adapters_dir).read(only_chain=True)
    newest = deque((decision for decision, _ in entries if agent in (None, decision.agent_id)), maxlen=count)
    if json:
        print_json([decision.model_dump(mode="json") for decision in newest])
    else:
        out.print(render_decisions(newest))


@adapters.command()
def promote(version: Version, reason: Reason, agent: Agent = None, json: AsJson = False) -> None:
    """Make a version the primary at once, without an experiment; a watch begins."""
    service = operator_service_here(agent)
    _say_after(service, service.promote("adapters", version, reason), json)


@adapters.command()
def rollback(
    reason: Reason,
    version: Annotated[str | None, typer.Argument(help="The primary or the candidate; the primary if alone.")] = None,
    to: Annotated[str | None, typer.Option(help="Which version takes over; the previous primary if not named.")] = None,
    agent: Agent = None,
    json: AsJson = False,
) -> None:
    """Take a version out of traffic at once. Works while frozen, too."""
    service = operator_service_here(agent)
    _say_after(service, service.roll_back("adapters", version, reason, to), json)


@adapters.command()
def freeze(reason: Reason = "frozen by hand", agent: Agent = None, json: AsJson = False) -> None:
    """Stop all promotion and new experiments of an agent; what does harm is still rolled back."""
    service = operator_service_here(agent)
    _say_after(service, service.decide(Freeze(), reason), json)


@adapters.command()
def unfreeze(reason: Reason = "unfrozen by hand", agent: Agent = None, json: AsJson = False) -> None:
    """Let the agent learn again."""
    service = operator_service_here(agent)
    _say_after(service, service.decide(Unfreeze(), reason), json)


@adapters.command()
def reanchor(reason: Reason, agent: Agent = None, json: AsJson = False) -> None:
    """Take the scorer's scores, as they are now, as the measure: after a change of the judge that was meant.

    Its anchors get new references at the next check; training and experiments, which wait while it drifts, go on.
    """
    service = operator_service_here(agent)
    _say_after(service, service.decide(Trust(anchor_anew=True), reason), json)


@adapters.command()
def verify(json: AsJson = False) -> None:
    """Check who signed the decisions, their chain, the registry, every byte of every adapter, and what it learned from.

    Of the logs it says what differs from what was written or from what a version learned from, and what it can't check.
    Exit code 1 if anything is wrong.
    """
    settings = FleetSettings.read()
    limits = AdapterLimits(settings.adapter_max_rank)
    found = verify_registry(RegistryStore.from_settings(settings), limits, settings.logs_dir)
    if json:
        print_json(found.model_dump(mode="json"))
    else:
        for fault in found.faults or ["All as it was decided."]:
            out.print(f"{'✔' if found.ok else '✘'} {fault}", markup=False, style="green" if found.ok else "red")
        for note in found.notes:
            out.print(note, markup=False, style="dim")
        signed = f"{found.signed} of them signed, now by key {found.key}" if found.key else "none of them signed yet"
        out.print(f"{found.decisions} decisions, {signed}; the last one's sha256: {found.sha256}", markup=False)
    if not found.ok:
        raise typer.Exit(ExitCode.FAILED)


@adapters.command()
def key(
    rotate: Annotated[bool, typer.Option(help="Make a new one, which the old one names in the ledger.")] = False,
    reason: Reason = "rotated by hand",
    json: AsJson = False,
) -> None:
    """Show the key that decisions are signed with, or make a new one.

    The private half is signing-key.json in RATCHET_DECISION_KEYS; who keeps a backup of it keeps it apart from that of
    the adapters. Old public keys stay in jwks.json there: the decisions they signed stay good.
    """
    settings = FleetSettings.read()
    if rotate:
        RegistryStore.from_settings(settings).rotate_key(_sign_with(settings, reason))
    signing = Signing(settings.decision_keys_dir, settings.logs_dir)
    keys, signer = signing.keys(), signing.signer()
    if json:
        print_json({"folder": str(signing.keys_dir), "key": signer and signer.key, "keys": keys})
        return
    shown = f"{signer.key} signs decisions" if signer else "there is no key: the orchestrator's first start makes one"
    out.print(f"{shown} ({signing.keys_dir})", markup=False)


@adapters.command()
def accept(reason: Reason, json: AsJson = False) -> None:
    """Take the ledger as it stands: after a lost key, a restored older copy, or a while under an older version.

    What is in it counts from now on, whoever signed it, and what is missing stays missing; the decision to do so is in
    the ledger, signed, under your name. Look at it first: `ratchet adapters history`. Stop the orchestrator before.
    """
    settings = FleetSettings.read()
    registry = RegistryStore.from_settings(settings).accept(_sign_with(settings, reason))
    if json:
        print_json({"revision": registry.revision, "key": registry.ledger_key})
        return
    out.print(f"{registry.revision - 1} decisions are taken as they stand; decision {registry.revision} says so.")


@adapters.command()
def rebuild(json: AsJson = False) -> None:
    """Make adapter_registry.json anew from the decisions; the file it replaces is kept beside it."""
    registry, kept = rebuilt(RegistryStore.from_settings(FleetSettings.read()))
    if json:
        print_json({"revision": registry.revision, "kept": kept and str(kept)})
        return
    out.print(f"The registry is rebuilt from {registry.revision} decisions.")
    if kept:
        out.print(f"What was there before is in {kept}", markup=False)


def _say_after(service: OperatorService, registry: Registry, as_json: bool) -> None:
    agent = registry.agent(service.agent_id)
    if as_json:
        print_json({"revision": registry.revision, "agent": agent.model_dump(mode="json")})
        return
    out.print(f"Decision {registry.revision} is recorded.")
    out.print(render_agent(service.agent_id, agent))


def _sign_with(settings: FleetSettings, reason: str) -> Callable[[str], DecisionDraft]:
    """The decision that a public key signs from it on."""

    def draft(key: str) -> DecisionDraft:
        return DecisionDraft(
            agent_id=settings.agents[0],
            move=SignWith(key=key),
            who=f"operator:{operator()}",
            at=datetime.now(UTC),
            reason=reason,
        )

    return draft


def rebuilt(store: RegistryStore) -> tuple[Registry, Path | None]:
    """The registry made anew from the ledger, and where the file it replaced is kept. Raises RegistryError."""
    store.replay()  # a broken ledger is refused before anything is touched
    if not store.path.exists():
        return store.rebuild(), None
    kept = store.path.with_name(f"{store.path.name}.{datetime.now(UTC):%Y%m%dT%H%M%S}")
    try:
        shutil.copy2(store.path, kept)
    except OSError as error:
        raise CommandError(f"{store.path} can't be copied before it is replaced: {error}") from error
    return store.rebuild(), kept
