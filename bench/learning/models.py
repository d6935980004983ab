"""The models of the comparison: two that have something to learn, made in different ways, and the judge.

None has seen a held-out answer. Made once, some four CPU-minutes in all, and kept.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from bench.learning.tasks import training_task
from demos.toy.make import RECIPE_FILE, read_recipe
from demos.toy.recipe import JUDGE, SMALL, Recipe

BASES = {
    "slips": (replace(SMALL, name="slips"), 0),
    "mixes": (replace(SMALL, name="mixes", hidden=128, heads=4, right_share=0.4, last_two_swapped_share=0.2), 1),
}
"""Recipe and seed: most mistakes are the last two letters swapped, or any two."""
JUDGES = {"judge": (replace(JUDGE, name="judge-of-answers"), 0)}


def make_models(folder: Path) -> None:
    for name, (recipe, seed) in (BASES | JUDGES).items():
        if read_recipe(folder / name, recipe, seed) is None:
            _make(recipe, seed, folder / name)


def _make(recipe: Recipe, seed: int, folder: Path) -> None:
    from demos.toy.pretraining import pretrain

    folder.mkdir(parents=True, exist_ok=True)
    measured = pretrain(recipe, seed, folder, training_task)
    report = {"recipe_sha256": recipe.sha256(seed), "seed": seed, **measured, "recipe": asdict(recipe)}
    (folder / RECIPE_FILE).write_text(json.dumps(report, indent=2) + "\n")
