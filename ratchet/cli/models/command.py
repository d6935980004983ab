"""`ratchet models`: make the two small models with no download, and list what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

models = typer.Typer(help="The small models that are made here, with no download.", no_args_is_help=True)


@models.command()
def make(out: Annotated[Path, typer.Option(help="Folder to put them in.")] = Path("models")) -> None:
    """Make the small base model and the bigger scoring model; at once where they are there already."""
    from ratchet.cli.models.make import make_models
    from ratchet.cli.terminal.console import print_raw, say

    print_raw(make_models(out, say))


@models.command("list")
def list_(
    folder: Annotated[Path, typer.Option(help="Folder to look in.")] = Path("models"),
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the model folders: name, size and what they hold."""
    from ratchet.cli.models.make import model_folders
    from ratchet.cli.terminal.console import out, print_json

    found = model_folders(folder)
    if json:
        print_json([model.as_dict() for model in found])
        return
    if not found:
        out.print(f"No models in {folder}/. Type: ratchet models make", markup=False)
    for model in found:
        out.print(f"{model.path}  {model.architecture}  {model.megabytes:.1f} MB", markup=False)
