"""Makes the models that need no download: `python -m demos.toy.make make --out models`.

The two of the sort task, or one by name. They are trained at once, each in a process of its own. Already made by the
same recipe and seed: nothing is done.
Progress goes to stderr; the last thing, on stdout, is one line of JSON. torch is imported in the processes only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from demos.toy.recipe import JUDGE, SMALL, TOOL_USER, Network

RECIPE_FILE = "ratchet_recipe.json"
SEED = 0
RECIPES = {recipe.name: recipe for recipe in (SMALL, JUDGE, TOOL_USER)}
USUAL = (SMALL, JUDGE)


def make_models(out: Path, seed: int, recipes: Sequence[Network] = USUAL) -> list[dict[str, Any]]:
    """Make the models. Return each model's recipe file, and whether it was there already."""
    out.mkdir(parents=True, exist_ok=True)
    missing = [recipe for recipe in recipes if read_recipe(out / recipe.name, recipe, seed) is None]
    if missing:
        names = " and ".join(recipe.name for recipe in missing)
        sys.stderr.write(f"making {names} in {out}: about a minute on two idle cores\n")
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(len(missing), mp_context=context) as processes:
            list(processes.map(make_model, missing, [seed] * len(missing), [out / one.name for one in missing]))
    return [_report(out, recipe, seed, cached=recipe not in missing) for recipe in recipes]


def read_recipe(folder: Path, recipe: Network, seed: int) -> dict[str, Any] | None:
    """The recipe file of a model that is there, whole, and made by this recipe; else None."""
    try:
        report: dict[str, Any] = json.loads((folder / RECIPE_FILE).read_text())
    except (OSError, ValueError):
        return None
    whole = (folder / "model.safetensors").is_file()
    return report if whole and report.get("recipe_sha256") == recipe.sha256(seed) else None


def make_model(recipe: Network, seed: int, folder: Path) -> None:
    """Train into a temporary folder beside it, the recipe file last, then take the folder's place."""
    from ratchet.models.loading import content_sha256

    started = time.monotonic()
    temporary = Path(mkdtemp(prefix=f".{recipe.name}-", dir=folder.parent))
    try:
        measured = importlib.import_module(recipe.PRETRAINING).pretrain(recipe, seed, temporary)
        report = {
            "recipe_sha256": recipe.sha256(seed),
            "sha256": content_sha256(temporary),
            "seed": seed,
            **measured,
            "seconds": round(time.monotonic() - started, 1),
            "recipe": asdict(recipe),
        }
        (temporary / RECIPE_FILE).write_text(json.dumps(report, indent=2) + "\n")
        temporary.chmod(0o755)
        _replace(folder, temporary)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace(folder: Path, new: Path) -> None:
    if folder.exists():
        old = Path(mkdtemp(prefix=f".old-{folder.name}-", dir=folder.parent))
        folder.rename(old / folder.name)
        shutil.rmtree(old)
    new.rename(folder)


def _report(out: Path, recipe: Network, seed: int, *, cached: bool) -> dict[str, Any]:
    report = read_recipe(out / recipe.name, recipe, seed)
    if report is None:
        raise RuntimeError(f"{out / recipe.name} was taken away or remade while it was made: run the command again")
    return {"name": recipe.name, "path": str(out / recipe.name), "cached": cached} | report


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m demos.toy.make", description=__doc__)
    make = parser.add_subparsers(required=True).add_parser("make", help="make the models that are missing")
    make.add_argument("--out", type=Path, default=Path("models"), help="folder of the models (default: models)")
    make.add_argument("--only", choices=sorted(RECIPES), help="this one alone (default: small and judge)")
    make.add_argument("--seed", type=int, default=SEED, help=f"seed of weights and demonstrations (default: {SEED})")
    given = parser.parse_args(arguments)
    try:
        models = make_models(given.out, given.seed, (RECIPES[given.only],) if given.only else USUAL)
    except OSError as error:
        sys.exit(f"{given.out} can't be written: {error}")
    sys.stdout.write(json.dumps({"models": models}) + "\n")


if __name__ == "__main__":
    main()
