"""`ratchet programs`: those that may answer tasks, what they require for their sandboxes, and how they compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ratchet.cli.fleet.folder import FleetAccess
from ratchet.cli.programs.comparison import NONE_YET, comparison
from ratchet.cli.terminal import AsJson, CommandError, UsageError, out, print_json, say, table
from ratchet.experiments.programs import ProgramBook
from ratchet.recorder.environments import Environments
from ratchet.recorder.image.installing import NotInstalled
from ratchet.recorder.installing import install as install_all
from ratchet.recorder.installing import is_installed, needs
from ratchet.recorder.programs import Program, declared_programs
from ratchet.service.settings import FleetSettings

programs = typer.Typer()

File = Annotated[
    Path | None,
    typer.Option("--file", help="The file that declares them; those that are installed if not named.", exists=True),
]


@programs.command("list")
def list_(file: File = None, json: AsJson = False) -> None:
    """List programs, and whether what each requires is installed."""
    environments = _environments()
    found = declared_programs(file)
    if json:
        print_json([_as_record(name, program, environments) for name, program in found.items()])
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
        known = sorted({*access.agents, *(one.agent_id for one in book.compared().items)})
        if agent not in known:
            raise UsageError(f"there is no agent {agent!r}: the fleet and its log have {', '.join(known) or 'none'}")
    found = book.compared(agent)
    if json:
        print_json(found.model_dump(mode="json"))
    else:
        out.print(comparison(found) if found.items else NONE_YET)


def _environments() -> Environments:
    return Environments(FleetSettings.read().program_environments)


def _as_record(name: str, program: Program, environments: Environments) -> dict[str, object]:
    return {"name": name, "requires": needs(name, program), "installed": is_installed(name, program, environments)}
