"""`ratchet models`: make the two small models with no download, and list what there is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from ratchet.cli.terminal import AsJson, CommandError, out, print_json, print_raw, say

models = typer.Typer()


@models.command()
def make(out: Annotated[Path, typer.Option(help="Folder to put them in.")] = Path("models")) -> None:
    """Make the small base model and the bigger scoring model; at once where they are there already."""
    print_raw(make_models(out, say))


@models.command("list")
def list_(
    folder: Annotated[Path, typer.Option(help="Folder to look in.")] = Path("models"),
    json: AsJson = False,
) -> None:
    """List the model folders: name, size and what they hold."""
    found = model_folders(folder)
    if json:
        print_json([asdict(model) for model in found])
        return
    if not found:
        out.print(f"No models in {folder}/. Type: ratchet models make", markup=False)
    for model in found:
        out.print(f"{model.path}  {model.architecture}  {model.megabytes:.1f} MB", markup=False)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    path: str
    architecture: str
    megabytes: float


def model_folders(folder: Path) -> list[ModelFolder]:
    """Each direct sub-folder with a `config.json`."""
    return [_read(config.parent) for config in sorted(folder.glob("*/config.json"))]


def _read(folder: Path) -> ModelFolder:
    try:
        architectures = json.loads((folder / "config.json").read_text()).get("architectures") or ["?"]
    except (ValueError, AttributeError):
        architectures = ["unreadable config.json"]
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    return ModelFolder(str(folder), architectures[0], size / 1e6)


LAST_LINES = 5


def make_models(out: Path, say: Callable[[str], None]) -> str:
    """Run the model maker; each line of its progress goes to `say`. Returns what it printed: one JSON line.

    Raises CommandError with its last lines if it fails.
    """
    maker = subprocess.Popen(
        [sys.executable, "-m", "ratchet.models.toy.make", "make", "--out", str(out)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert maker.stderr is not None and maker.stdout is not None
    lines: list[str] = []
    try:
        for line in maker.stderr:
            lines = [*lines[-LAST_LINES:], line.rstrip()]
            say(line.rstrip())
        printed = maker.stdout.read()
        if maker.wait() != 0:
            raise CommandError(f"the models could not be made: {' / '.join(lines)}")
        return printed.strip()
    finally:
        if maker.poll() is None:
            maker.terminate()
            maker.wait()
