"""`ratchet agents`: agents that are registered with the manager while the fleet runs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.fleet.api_client import FleetToken, ManagerUrl, api_client, call_api
from services.cli.terminal import AsJson, Listing, UsageError, out, print_json, print_raw, read_text, say

agents = typer.Typer()

Name = Annotated[str, typer.Argument(help="The agent's name.")]
MOST_FILE_BYTES = 256 * 1024
FIGURES = ("waiting", "released", "ok", "failed", "expired", "cancelled")


@agents.command()
def add(
    file: Annotated[Path, typer.Argument(help="TOML: name, kind, [program], and files = { PATH = FILE }.")],
    url: ManagerUrl = None,
    token: FleetToken = None,
) -> None:
    """Register an agent, and print its name. Nothing is restarted; the same agent again changes nothing.

    Files of the program are read here: `files` names them by the path at which the program sees them.
    """
    with api_client("manager", url, token) as client:
        agent = call_api(client, "POST", "/v1/agents", json=read_agent(file))
    print_raw(agent["name"])
    say(f"{agent['state']}: `ratchet jobs submit FILE --agent {agent['name']}` gives it tasks")


@agents.command("list")
def list_(json: AsJson = False, url: ManagerUrl = None, token: FleetToken = None) -> None:
    """List the agents that are registered, with their states."""
    with api_client("manager", url, token) as client:
        found = call_api(client, "GET", "/v1/agents", params={"limit": 200})["items"]
    if json:
        print_json(found)
        return
    listing = Listing("agent", "kind", "model", "revision", "state", "reason")
    for one in found:
        listing.add(one["name"], one["kind"], one["model"], str(one["revision"]), one["state"], one["reason"])
    out.print(listing if found else "No agent is registered yet. Register one: ratchet agents add FILE.toml")


@agents.command()
def show(name: Name, json: AsJson = False, url: ManagerUrl = None, token: FleetToken = None) -> None:
    """Show an agent, why it is in its state, and the figures of its jobs."""
    with api_client("manager", url, token) as client:
        agent = call_api(client, "GET", f"/v1/agents/{name}")
        figures = call_api(client, "GET", f"/v1/agents/{name}/metrics")
    if json:
        print_json({"agent": agent, "metrics": figures})
        return
    print_raw(f"{name}  {agent['kind']} with the model of {agent['model']}, revision {agent['revision']}")
    print_raw(f"{agent['state']}: {agent['reason']}")
    counts = ", ".join(f"{figures[one]:,} {one}" for one in FIGURES if figures[one])
    print_raw(f"{figures['jobs']:,} open jobs; tasks: {counts or 'none'}")
    if figures["mean_score"] is not None:
        print_raw(f"mean score of the newest answers: {figures['mean_score']:.3f}")
    if agent["budget"] is not None or float(figures["spent"]):
        of = "" if agent["budget"] is None else f" of {agent['budget']}"
        print_raw(f"{figures['spent']}{of} spent, {figures['reserved']} reserved")


@agents.command("set")
def set_(
    name: Name,
    file: Annotated[Path | None, typer.Argument(help="TOML with the fields that change; the others stay.")] = None,
    kind: Annotated[str | None, typer.Option(help="simulation, evaluation, research or real.")] = None,
    budget: Annotated[str | None, typer.Option(help="The most that all of its jobs may cost, such as 25.00.")] = None,
    version: Annotated[str | None, typer.Option(help="The adapter's version that answers, such as v1.0.2.")] = None,
    approval: Annotated[bool | None, typer.Option(help="Whether each of its jobs waits for an operator.")] = None,
    url: ManagerUrl = None,
    token: FleetToken = None,
) -> None:
    """Change an agent. Tasks that begin later have its new program."""
    wanted = read_agent(file) if file else {}
    wanted.pop("name", None)
    options = {"kind": kind, "budget": budget, "adapter_version": version, "needs_approval": approval}
    wanted |= {field: value for field, value in options.items() if value is not None}
    if not wanted:
        raise UsageError("nothing to change: give a file, or an option")
    with api_client("manager", url, token) as client:
        agent = call_api(client, "PATCH", f"/v1/agents/{name}", json=wanted)
    say(f"{name}, revision {agent['revision']}, is {agent['state']}: {agent['reason']}")


@agents.command()
def remove(name: Name, url: ManagerUrl = None, token: FleetToken = None) -> None:
    """Remove an agent: it takes no further job, and those that it has go on."""
    with api_client("manager", url, token) as client:
        agent = call_api(client, "DELETE", f"/v1/agents/{name}")
    say(f"{name} is {agent['state']}: {agent['reason']}")


def read_agent(file: Path) -> dict[str, Any]:
    """Return an agent as the API takes it, with its program's files as texts. Raises UsageError."""
    try:
        found = tomllib.loads(read_text(file))
        files = found.pop("files", {})
        texts = {at: _text(file.parent / str(place)) for at, place in files.items()}
    except (tomllib.TOMLDecodeError, AttributeError) as error:
        raise UsageError(f"{file} is no declaration of an agent: {error}") from None
    if texts:
        program = found.setdefault("program", {})
        program["data"] = {**program.get("data", {}), **texts}
    return found


def _text(place: Path) -> str:
    text = read_text(place)
    if len(text.encode()) > MOST_FILE_BYTES:
        raise UsageError(f"{place} has more than {MOST_FILE_BYTES:,} bytes: make a package of it (requirements)")
    return text
