"""Recipes, caching and determinism, on a recipe small enough for a test. What the real ones reach is measured when they
are made and written into their recipe files.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from demos.toy.make import RECIPE_FILE, main, make_model, make_models, read_recipe
from demos.toy.pretraining import demonstrate
from demos.toy.recipe import JUDGE, SMALL, TOOL_USER, Recipe
from demos.toy.sort_task import sort_task
from ratchet.models.loading import load_language_model
from ratchet.models.tokenization import prompt_ids

QUICK = replace(SMALL, name="quick", hidden=32, intermediate=32, layers=1, heads=1, steps=3, batch=4)


def test_one_recipe_and_seed_give_the_same_weights(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        make_model(QUICK, 1, tmp_path / folder)
    make_model(QUICK, 2, tmp_path / "c")
    first, again, other = (
        read_recipe(tmp_path / folder, QUICK, seed) for folder, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first is not None and again is not None and other is not None
    assert first["sha256"] == again["sha256"] != other["sha256"]


def test_a_model_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    (first,) = make_models(tmp_path, 0, [QUICK])
    (again,) = make_models(tmp_path, 0, [QUICK])
    assert (first["cached"], again["cached"]) == (False, True)
    assert {**first, "cached": True} == again


@pytest.mark.parametrize("damage", ["recipe", "weights", "seed"])
def test_another_recipe_or_a_damaged_folder_is_made_anew(tmp_path: Path, damage: str) -> None:
    make_model(QUICK, 0, tmp_path / "quick")
    if damage == "recipe":
        (tmp_path / "quick" / RECIPE_FILE).write_text("{")
    if damage == "weights":
        (tmp_path / "quick" / "model.safetensors").unlink()
    assert read_recipe(tmp_path / "quick", QUICK, 1 if damage == "seed" else 0) is None


def test_making_leaves_nothing_but_the_models(tmp_path: Path) -> None:
    make_model(QUICK, 0, tmp_path / "quick")
    make_model(QUICK, 1, tmp_path / "quick")
    assert [path.name for path in tmp_path.iterdir()] == ["quick"]


def test_what_is_made_loads_like_any_model(tmp_path: Path) -> None:
    make_model(QUICK, 0, tmp_path / "quick")
    loaded = load_language_model(str(tmp_path / "quick"), device="cpu")
    assert loaded.tokenizer.chat_template
    assert loaded.tokenizer.eos_token_id in loaded.end_ids
    assert len(prompt_ids(loaded.tokenizer, "sort: dbca")) == len("sort: dbca") + 3


@pytest.mark.parametrize(("recipe", "low", "high"), [(SMALL, 0.3, 0.6), (JUDGE, 1.0, 1.0)], ids=["small", "judge"])
def test_the_demonstrator_is_as_careless_as_its_recipe(recipe: Recipe, low: float, high: float) -> None:
    rng = random.Random(0)
    tasks = [sort_task(rng, held_out=False) for _ in range(2000)]
    right = sum(demonstrate(task, recipe, rng) == task.answer for task in tasks) / len(tasks)
    assert low <= right <= high


def test_the_command_says_what_it_made_in_one_line_of_json(tmp_path: Path) -> None:
    for recipe in (SMALL, JUDGE):
        folder = tmp_path / recipe.name
        folder.mkdir()
        (folder / "model.safetensors").touch()
        (folder / RECIPE_FILE).write_text(json.dumps({"recipe_sha256": recipe.sha256(0), "sha256": "0" * 64}))
    command = [sys.executable, "-m", "demos.toy.make", "make", "--out", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    models = json.loads(run.stdout)["models"]
    assert [(model["name"], model["cached"]) for model in models] == [("small", True), ("judge", True)]


def test_one_model_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / TOOL_USER.name
    folder.mkdir()
    (folder / "model.safetensors").touch()
    (folder / RECIPE_FILE).write_text(json.dumps({"recipe_sha256": TOOL_USER.sha256(0), "sha256": "0" * 64}))

    main(["make", "--out", str(tmp_path), "--only", "tool-user"])

    assert [model["name"] for model in json.loads(capsys.readouterr().out)["models"]] == ["tool-user"]
