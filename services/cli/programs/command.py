"""`ratchet programs`: those that may answer tasks, what they require, how they compare, and which of them answers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ratchet.adapters.agent_view import programs_standing
from ratchet.adapters.operator_service import OperatorService, chosen_agents, require_known
from ratchet.adapters.registry import RegistryStore
from ratchet.experiments.programs import ProgramBook
from ratchet.programs.declared import declared_programs, roles_by_agent
from ratchet.programs.environments import Environments
from ratchet.programs.images.installing import NotInstalled
from ratchet.programs.installing import install as install_all
from ratchet.programs.installing import is_installed, needs
from ratchet.service.settings import FleetSettings
from schemas.records.decision import TryProgram
from schemas.records.registry import Registry
from services.cli.adapters.here import Agent, Reason, operator_service_here
from services.cli.eval.asking import Asking
from services.cli.fleet.folder import FleetAccess, FleetFolder
from services.cli.fleet.service_http import answer_at
from services.cli.programs.comparison import NONE_YET, comparison, render_standing
from services.cli.programs.swap import ask_fleet, compare_vectors, logged_tasks, render_swap, swap_of, tasks_of
from services.cli.terminal import AsJson, CommandError, UsageError, out, print_json, say, table

programs = typer.Typer()

File = Annotated[
    Path | None,
    typer.Option("--file", help="The file that declares them; those that are installed if not named.", exists=True),
]

Name = Annotated[str, typer.Argument(metavar="PROGRAM", help="Its name in the file that declares it.")]


@programs.command("list")
def list_(file: File = None, json: AsJson = False) -> None:
    """List programs, and whether what each requires is installed."""
    environments = _environments()
    found = declared_programs(file)
    if json:
        print_json(
            [
                {"name": name, "requires": needs(name, one), "installed": is_installed(name, one, environments)}
                for name, one in found.items()
            ]
        )
        return
    shown = table("program", "what it requires", "", left=3)
    for name, program in found.items():
        wants = ", ".join(needs(name, program))
        there = is_installed(name, program, environments)
        ready = f"ratchet programs install {name}" if not there else "installed" if wants else ""
        shown.add_row(name, escape(wants) or "nothing", ready)
    out.print(shown)


@programs.command()
def install(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="All of a --file if none.")] = None,
    file: File = None,
) -> None:
    """Install what programs require, each into an environment of its own that their sandboxes see: minutes, once.

    pip fetches it from the package index that it is set up for; an image is unpacked, and pulled by skopeo where it is
    one of a registry. It lies in .ratchet/programs, or where RATCHET_PROGRAM_ENVIRONMENTS says; do it where the runner
    is.
    """
    found = declared_programs(file)
    if not names and file is None:
        raise UsageError(f"name a program: {', '.join(found)}; or a --file")
    if strange := [name for name in names or () if name not in found]:
        raise UsageError(f"there is no program {strange[0]!r}: there are {', '.join(found)}")
    nothing = True
    try:
        for name, place in install_all(found, names or list(found), _environments(), say):
            out.print(f"{name} is in {place}", markup=False)
            nothing = False
    except NotInstalled as error:
        raise CommandError(str(error)) from None
    if nothing:
        out.print("nothing is required", markup=False)


@programs.command()
def compare(agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None, json: AsJson = False) -> None:
    """Each program's rollouts in the log: score with its interval, tokens, calls and time, breaks, and how they ended.

    Each scorer by itself. No experiment: not all programs answered the same tasks.
    """
    access = FleetAccess.here()
    book = ProgramBook(access.logs_dir)
    if agent is not None:
        known = sorted({*access.agents, *(one.agent_id for one in book.compare().items)})
        if agent not in known:
            raise UsageError(f"there is no agent {agent!r}: the fleet and its log have {', '.join(known) or 'none'}")
    found = book.compare(agent)
    if json:
        print_json(found.model_dump(mode="json"))
    else:
        out.print(comparison(found) if found.items else NONE_YET)


@programs.command()
def standing(
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None, json: AsJson = False
) -> None:
    """Show which program answers each agent's tasks by default, which is tried, and how experiments ended."""
    settings = FleetSettings.read()
    registry = RegistryStore.from_settings(settings).read()
    found = [programs_standing(registry, name) for name in chosen_agents(settings.agents, registry, agent)]
    if json:
        print_json([one.model_dump(mode="json") for one in found])
        return
    for one in found:
        out.print(render_standing(one))


@programs.command()
def swap(
    agent: Annotated[str | None, typer.Option(help="The agent of the team's first role; the fleet's first.")] = None,
    tasks: Annotated[int, typer.Option(min=2, help="Logged prompts that are asked again.")] = 64,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=64, help="Rollouts for each of them.")] = 2,
    timeout: Annotated[float, typer.Option(help="Seconds in which something must come.")] = 600.0,
    json: AsJson = False,
) -> None:
    """Ask a team's new versions beside the old ones of their partners, and the other way round.

    Each vector of versions answers the newest logged prompts, as an evaluation: nobody learns from it or counts it. A
    role that gains much more beside its partners' new versions than beside the old has adapted to them.
    """
    access, settings = FleetAccess.here(), FleetSettings.read()
    chosen = agent or access.agents[0]
    roles = roles_by_agent(access.programs, access.agents).get(chosen)
    if roles is None:
        raise UsageError(f"the programs of agent {chosen} have no roles: see `roles` in the file of programs")
    found = swap_of(RegistryStore.from_settings(settings).read(), roles)
    logged = logged_tasks(access.logs_dir, chosen, tasks)
    if not logged:
        raise UsageError(f"the log has no task of agent {chosen} to ask again")
    asking = Asking(f"swap-{datetime.now(UTC):%Y%m%dT%H%M%S}", chosen, samples, timeout)
    asked = tasks_of(found, logged, asking)
    told = compare_vectors(found, asked, ask_fleet(access, asked, timeout))
    if json:
        print_json(told.as_record())
    else:
        out.print(render_swap(told))


@programs.command("try")
def try_(program: Name, reason: Reason, agent: Agent = None, json: AsJson = False) -> None:
    """Ask for an experiment of a program against the one that answers by default; what proves better takes over.

    It begins once runners have both, the new one has passed the gate, no other experiment runs, and nothing is frozen
    or cooling down: `ratchet programs standing` says whether it waits, `ratchet experiment show --follow` follows it.
    """
    service = operator_service_here(agent)
    _look_for(program, service.agent_id)
    _say_after(service, service.decide(TryProgram(program=program), reason), json)


@programs.command()
def promote(program: Name, reason: Reason, agent: Agent = None, json: AsJson = False) -> None:
    """Have a program answer an agent's tasks by default at once, without an experiment; a watch begins."""
    service = operator_service_here(agent)
    _look_for(program, service.agent_id)
    _say_after(service, service.promote("programs", program, reason), json)


@programs.command()
def rollback(
    reason: Reason,
    program: Annotated[
        str | None, typer.Argument(help="One that waits, is tried, or answers by default; the last if alone.")
    ] = None,
    agent: Agent = None,
    json: AsJson = False,
) -> None:
    """Take a program out of traffic at once, or call its experiment off. Works while frozen, too."""
    service = operator_service_here(agent)
    _say_after(service, service.roll_back("programs", program, reason), json)


def _look_for(program: str, agent_id: str) -> None:
    """Raises NotFound for what no runner has. Where nobody knows what they have, that is said and holds nobody up."""
    told = answer_at(f"/v1/programs/{agent_id}", FleetFolder.here().record())
    known = told["runs"] if told else ()
    require_known(program, known)
    if not known:
        say(f"No runner was heard from here, so nobody looked whether one has a program {program!r}.")


def _say_after(service: OperatorService, registry: Registry, as_json: bool) -> None:
    found = programs_standing(registry, service.agent_id)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    out.print(f"Decision {registry.revision} is recorded.")
    out.print(render_standing(found))


def _environments() -> Environments:
    return Environments(FleetSettings.read().program_environments)
