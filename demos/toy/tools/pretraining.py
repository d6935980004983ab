"""Trains the tool model from nothing on a careless teacher's conversations. One thread, one seed: the same weights.

Imports torch; make.py runs it in a process of its own.
"""

from __future__ import annotations

import random
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM
from transformers.utils.logging import disable_progress_bar

from demos.toy.byte_tokenizer import ASSISTANT, END
from demos.toy.pretraining import fit, llama_config
from demos.toy.recipe import FLAWLESS, Care, ToolRecipe
from demos.toy.tools.task import tool_task
from demos.toy.tools.teacher import demonstration
from demos.toy.tools.tokenizer import tool_tokenizer

MAX_POSITIONS = 1024


def pretrain(recipe: ToolRecipe, seed: int, folder: Path) -> dict[str, Any]:
    """Write model and tokenizer into the folder. How well it does with its tools is for who runs them to measure."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    disable_progress_bar()
    tokenizer = tool_tokenizer(MAX_POSITIONS)
    model = LlamaForCausalLM(llama_config(recipe, tokenizer))
    rng = random.Random(seed)
    cares = chain(repeat(FLAWLESS, recipe.careful_steps), repeat(recipe.care))
    fit(model, recipe, lambda: _loss(model, tokenizer, _conversations(tokenizer, recipe.batch, next(cares), rng)))
    model.eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {"parameters": sum(parameter.numel() for parameter in model.parameters())}


def _conversations(tokenizer: Any, count: int, care: Care, rng: random.Random) -> torch.Tensor:
    """(batch, tokens), padded on the right."""
    texts = [demonstration(tool_task(rng, "train"), care, rng) for _ in range(count)]
    given = tokenizer(texts, add_special_tokens=False, padding=True, padding_side="right")
    return torch.tensor(given["input_ids"])


def _loss(model: Any, tokenizer: Any, ids: torch.Tensor) -> torch.Tensor:
    """Mean over what the assistant says, the ends of its turns included."""
    hidden = model.model(input_ids=ids[:, :-1]).last_hidden_state
    said = assistant_tokens(tokenizer, ids)[:, 1:]
    return cross_entropy(model.lm_head(hidden[said]), ids[:, 1:][said])


def assistant_tokens(tokenizer: Any, ids: torch.Tensor) -> torch.Tensor:
    """True where a token of `ids` (batch, tokens) is of an assistant's turn, its end included, its beginning not."""
    assistant, end = (tokenizer.convert_tokens_to_ids(token) for token in (ASSISTANT, END))
    turns = torch.zeros_like(ids, dtype=torch.bool)
    open_turn = torch.zeros(len(ids), dtype=torch.bool)
    for place in range(ids.shape[1]):
        turns[:, place] = open_turn
        open_turn = (open_turn & (ids[:, place] != end)) | (ids[:, place] == assistant)
    return turns
