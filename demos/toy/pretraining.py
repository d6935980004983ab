"""Trains a small Llama from nothing on demonstrations of the sort task. One thread, one seed: the same weights again.

Imports torch; small_models.py runs it in a process of its own for each model.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils.logging import disable_progress_bar

from demos.toy.byte_tokenizer import byte_tokenizer
from demos.toy.recipe import Network, Recipe
from demos.toy.sort_task import LENGTH, SortTask, sort_task
from ratchet.models.tokenization import completion_text, prompt_ids

MAX_POSITIONS = 1024
WARM_UP_STEPS = 20
REPORT_EVERY = 50
TASKS_ASKED = 200


Draw = Callable[[random.Random], SortTask]


def training_task(rng: random.Random) -> SortTask:
    return sort_task(rng, held_out=False)


def pretrain(recipe: Recipe, seed: int, folder: Path, draw: Draw = training_task) -> dict[str, Any]:
    """Train on tasks that are drawn so, write model and tokenizer into the folder, return what was measured on tasks
    held out from training."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    disable_progress_bar()
    tokenizer = byte_tokenizer(MAX_POSITIONS)
    model = LlamaForCausalLM(llama_config(recipe, tokenizer))
    rng = random.Random(seed)
    fit(model, recipe, lambda: _answer_loss(model, _demonstrations(tokenizer, recipe, rng, draw)))
    model.eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "greedy_accuracy": accuracy(model, tokenizer, do_sample=False),
        "sampled_accuracy": accuracy(model, tokenizer, do_sample=True),
    }


def llama_config(recipe: Network, tokenizer: Any) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        intermediate_size=recipe.intermediate,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def fit(model: Any, recipe: Network, next_loss: Callable[[], torch.Tensor]) -> None:
    """AdamW under a cosine; `next_loss` is that of a batch of demonstrations."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.99), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_share(step, recipe.steps))
    model.train()
    for step in range(1, recipe.steps + 1):
        loss = next_loss()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % REPORT_EVERY == 0 or step == recipe.steps:
            sys.stderr.write(f"{recipe.name}: step {step} of {recipe.steps}, loss {loss.item():.3f}\n")
            sys.stderr.flush()


def learning_rate_share(step: int, steps: int) -> float:
    """Share of the learning rate: a linear warm-up, then half a cosine down to 2 %."""
    return min(1.0, (step + 1) / WARM_UP_STEPS) * max(0.02, 0.5 * (1 + math.cos(math.pi * step / steps)))


def _answer_loss(model: Any, sequences: torch.Tensor) -> torch.Tensor:
    """Mean over the last LENGTH + 1 tokens of each row: the answer and its end token."""
    targets = sequences[:, -(LENGTH + 1) :]
    hidden = model.model(input_ids=sequences[:, :-1]).last_hidden_state[:, -(LENGTH + 1) :]
    return cross_entropy(model.lm_head(hidden).flatten(0, 1), targets.flatten())


def _demonstrations(tokenizer: Any, recipe: Recipe, rng: random.Random, draw: Draw) -> torch.Tensor:
    """(batch, tokens): prompts, each with an answer as careless as the recipe says, and the end token."""
    tasks = [draw(rng) for _ in range(recipe.batch)]
    answers = [demonstrate(task, recipe, rng) + tokenizer.eos_token for task in tasks]
    texts = [f"{prompt}{answer}" for prompt, answer in zip(_prompts(tokenizer, tasks), answers, strict=True)]
    return torch.tensor(tokenizer(texts, add_special_tokens=False)["input_ids"])


def _prompts(tokenizer: Any, tasks: Sequence[SortTask]) -> list[str]:
    """The tasks' text is our own, so it can be templated without a guard against control tokens."""
    chats = [[{"role": "user", "content": task.input}] for task in tasks]
    return list(tokenizer.apply_chat_template(chats, add_generation_prompt=True, tokenize=False))


def demonstrate(task: SortTask, recipe: Recipe, rng: random.Random) -> str:
    """An answer by the recipe's demonstrator."""
    letters = list(task.answer)
    luck = rng.random()
    if luck >= recipe.right_share:
        slip = luck < recipe.right_share + recipe.last_two_swapped_share
        one, other = (-1, -2) if slip else rng.sample(range(LENGTH), 2)
        letters[one], letters[other] = letters[other], letters[one]
    return "".join(letters)


def accuracy(model: Any, tokenizer: Any, *, do_sample: bool) -> float:
    """Share of held-out tasks answered exactly, one answer each."""
    rng = random.Random(1)
    tasks = [sort_task(rng, held_out=True) for _ in range(TASKS_ASKED)]
    prompts = torch.tensor([prompt_ids(tokenizer, task.input) for task in tasks])
    unfiltered = {"top_k": 0, "top_p": 1.0} if do_sample else {}
    answers = model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=LENGTH + 1,
        do_sample=do_sample,
        **unfiltered,
    )[:, prompts.shape[1] :]
    texts = [completion_text(tokenizer, answer) for answer in answers.tolist()]
    return sum(text == task.answer for text, task in zip(texts, tasks, strict=True)) / len(tasks)
