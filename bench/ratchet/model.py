"""Makes v1.0.0: a small Llama trained from nothing, at first on right demonstrations, then on careless ones.

So it can do more than it does: there is something to learn from its own traffic in each family. One thread, one seed:
the same weights. As the demo's models are made (demos/toy), but with answers of any length.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from bench.ratchet.tasks import Carelessness, demonstrate, training_problem
from demos.toy.byte_tokenizer import byte_tokenizer
from demos.toy.make import RECIPE_FILE, read_recipe
from demos.toy.pretraining import MAX_POSITIONS, fit, llama_config
from demos.toy.recipe import SMALL
from ratchet.models.tokenization import prompt_ids

CAREFUL_STEPS = 2880
RECIPE = replace(SMALL, name=f"base, careful for {CAREFUL_STEPS} steps", steps=3600)
CAREFUL, CARELESSNESS = Carelessness(right=1.0, slip=0.0, chatty=0.0), Carelessness()
IGNORED = -100


def make_model(folder: Path, seed: int) -> Path:
    """Make the model, or take what lies there by the same recipe and seed."""
    recipe = replace(RECIPE, right_share=CARELESSNESS.right, last_two_swapped_share=CARELESSNESS.slip)
    if read_recipe(folder, recipe, seed) is None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = byte_tokenizer(MAX_POSITIONS)
        model = LlamaForCausalLM(llama_config(recipe, tokenizer))
        rng, steps = random.Random(seed), itertools.count(1)

        def next_loss() -> torch.Tensor:
            how = CAREFUL if next(steps) <= CAREFUL_STEPS else CARELESSNESS
            ids, targets = _demonstrations(tokenizer, recipe.batch, how, rng)
            return cross_entropy(model(input_ids=ids).logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())

        fit(model, recipe, next_loss)
        model.eval().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        report = {"recipe_sha256": recipe.sha256(seed), "seed": seed, "recipe": asdict(recipe)}
        (folder / RECIPE_FILE).write_text(json.dumps(report, indent=2) + "\n")
    return folder


def _demonstrations(
    tokenizer: Any, count: int, how: Carelessness, rng: random.Random
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids, and the same where an answer is to be learned; padded on the right, which nothing before it sees."""
    rows = []
    for _ in range(count):
        problem = training_problem(rng)
        answer = demonstrate(problem, how, rng)
        rows.append((prompt_ids(tokenizer, problem.input), answer_ids(tokenizer, answer)))
    return pad_rows(rows, tokenizer.pad_token_id)


def answer_ids(tokenizer: Any, answer: str) -> list[int]:
    return [*tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]


def pad_rows(rows: Sequence[tuple[list[int], list[int]]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and targets, [rows, longest]; targets are IGNORED except on answers."""
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids = torch.full((len(rows), width), pad)
    targets = torch.full((len(rows), width), IGNORED)
    for row, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        targets[row, len(prompt) : end] = torch.tensor(answer)
    return ids, targets
