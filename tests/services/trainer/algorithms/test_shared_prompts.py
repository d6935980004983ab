"""Answers behind one prompt get the very log-probabilities, and gradients, they get one by one."""

from __future__ import annotations

import random
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from ratchet.models.tokenization import load_tokenizer
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.grpo import Grpo
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters
from services.trainer.algorithms.logged_trainer import LoggedTrainer
from services.trainer.algorithms.shared_prompts import IGNORED, is_cheaper, share_prompts
from services.trainer.data.samples import TrainingSample
from tests.services.trainer.tiny_policy import tiny_lora

PAD = 0


def test_the_layout_of_two_answers_to_one_prompt_and_one_to_another() -> None:
    ids = torch.tensor([[7, 8, 9, 1, 2], [PAD, 5, 6, 3, PAD], [7, 8, 9, 4, PAD]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0], [1, 1, 1, 1, 0]])

    shared = share_prompts(ids, mask, completion=2, padding=PAD)

    assert shared.ids.tolist() == [[7, 8, 9, 1, 9], [5, 6, PAD, PAD, PAD]]
    assert shared.positions.tolist() == [[0, 1, 2, 3, 2], [0, 1, 0, 0, 0]]
    assert shared.labels.tolist() == [[IGNORED, IGNORED, 1, 2, 4], [IGNORED, 3, IGNORED, IGNORED, IGNORED]]
    assert shared.segments.tolist() == [[0, 0, 1, 1, 2], [0, 1, -1, -1, -1]]
    assert shared.gather(shared.labels.float()).tolist() == [[1, 2], [3, 0], [4, 0]]
    seen = shared.mask(torch.float32)[0, 0] == 0
    assert seen.tolist() == [
        [True, False, False, False, False],
        [True, True, False, False, False],
        [True, True, True, False, False],
        [True, True, True, True, False],
        [True, True, False, False, True],
    ]


def test_equal_answers_to_one_prompt_go_through_once() -> None:
    ids = torch.tensor([[7, 8, 1, 2], [7, 8, 4, PAD], [7, 8, 1, 2], [7, 9, 1, 2]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]])

    shared = share_prompts(ids, mask, completion=2, padding=PAD)
    apart = share_prompts(ids, mask, completion=2, padding=PAD, together=False)

    assert shared.ids.tolist() == [[7, 8, 1, 8], [7, 9, 1, PAD]], "the same answer to another prompt is another"
    assert shared.gather(shared.labels.float()).tolist() == [[1, 2], [4, 0], [1, 2], [1, 2]]
    assert shared.place[0].tolist() == shared.place[2].tolist()
    assert len(apart.ids) == 4


@pytest.mark.parametrize(
    ("plain", "shared", "cheaper"),
    [
        ((8, 200), (1, 420), True),  # a long prompt, short answers
        ((8, 18), (1, 58), True),
        ((8, 4000), (1, 31_000), False),  # a short prompt, long answers: too many masked pairs
        ((8, 20), (8, 20), False),  # no two answers to a prompt
    ],
)
def test_it_is_done_where_it_saves_operations(plain: tuple[int, int], shared: tuple[int, int], cheaper: bool) -> None:
    assert is_cheaper(torch.Size(plain), torch.Size(shared), 8_000_000, 256 * 6) is cheaper


def samples() -> list[TrainingSample]:
    """Three groups of long prompts and short answers, in each of which one answer was given twice."""
    rng = random.Random(3)

    def tokens(low: int, high: int) -> array[int]:
        return array("l", (rng.randrange(256) for _ in range(rng.randint(low, high))))

    found = []
    for group, size in enumerate((4, 3, 5)):
        prompt = tokens(20, 40)
        answers = [tokens(1, 6) for _ in range(size - 1)]
        for completion in [*answers, answers[0]]:
            logprobs = array("f", [-5.0] * len(completion))
            found.append(TrainingSample(group, "v", rng.random(), prompt, completion, logprobs))
    return found


def trainer_of(policy: Any, model: Path, folder: Path) -> LoggedTrainer:
    inputs = TrainerInputs(policy, load_tokenizer(model), samples(), folder, 0, 1.0, 1e-4, False)
    return Grpo().trainer(inputs, GrpoHyperparameters(epochs=1, batch=12))


def masks_of(tensors: dict[str, torch.Tensor], vocabulary: int) -> torch.Tensor:
    """Masks that allow half of the tokens and those that were sampled, the same for equal answers to one prompt."""
    rng, made = random.Random(7), dict[tuple[Any, ...], list[list[int]]]()
    found = []
    for prompt, answer in zip(tensors["prompt_ids"].tolist(), tensors["completion_ids"].tolist(), strict=True):
        masks = [[rng.getrandbits(32) for _ in range((vocabulary + 31) // 32)] for _ in answer]
        for mask, token in zip(masks, answer, strict=True):
            mask[token // 32] |= 1 << token % 32
        found.append(made.setdefault((*prompt, *answer), masks))
    return torch.from_numpy(np.array(found, np.uint32).view(np.int32))


@pytest.mark.parametrize("held", [False, True])
def test_log_probabilities_and_gradients_are_the_same(base_model: Path, tmp_path: Path, held: bool) -> None:
    trainer = trainer_of(tiny_lora(base_model), base_model, tmp_path)
    tensors = trainer.layout(range(12), 12)
    trainer._masks = masks_of(tensors, trainer.model.config.vocab_size) if held else None
    ids = torch.cat([tensors["prompt_ids"], tensors["completion_ids"]], dim=1)
    mask = torch.cat([tensors["prompt_mask"], tensors["completion_mask"]], dim=1)
    completion = tensors["completion_ids"].size(1)
    weights = torch.randn(12, completion) * tensors["completion_mask"]

    def gradients(logps: torch.Tensor) -> dict[str, torch.Tensor]:
        trainer.model.zero_grad()
        (logps * weights).sum().backward()  # type: ignore[no-untyped-call]
        return {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}

    together = trainer._with_shared_prompts(trainer.model, ids, mask, completion, trainer._masks)
    trainer._shares_prompts = False
    one_by_one = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, completion, compute_entropy=True)

    seen = tensors["completion_mask"].bool()
    assert together is not None
    assert torch.allclose(together[0][seen], one_by_one[0][seen], atol=1e-4)
    assert torch.allclose(together[1][seen], one_by_one[1][seen], atol=1e-4)
    found, expected = gradients(together[0]), gradients(one_by_one[0])
    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[name], expected[name], rtol=1e-3, atol=1e-4) for name in found)


def test_equal_answers_that_were_held_to_different_grammars_go_one_by_one(base_model: Path, tmp_path: Path) -> None:
    trainer = trainer_of(tiny_lora(base_model), base_model, tmp_path)
    tensors = trainer.layout(range(12), 12)
    ids = torch.cat([tensors["prompt_ids"], tensors["completion_ids"]], dim=1)
    mask = torch.cat([tensors["prompt_mask"], tensors["completion_mask"]], dim=1)
    masks = masks_of(tensors, trainer.model.config.vocab_size)
    masks[3, 0, 0] ^= 1 << 30  # the fourth sample's answer is the first one's

    together = trainer._with_shared_prompts(trainer.model, ids, mask, tensors["completion_ids"].size(1), masks)

    assert together is None


@pytest.mark.parametrize(("answer", "second_pass"), [(3, (2, 9)), (57, (6, 57))])
def test_what_all_prompts_begin_with_goes_through_once(
    base_model: Path, tmp_path: Path, answer: int, second_pass: tuple[int, int]
) -> None:
    """Two tasks with the same 70 tokens before the question; long answers are not put behind one another."""
    trainer = trainer_of(tiny_lora(base_model), base_model, tmp_path)
    trainer._parameters = 0  # what costs is pairs of tokens
    prompts = [[*range(70), question] for question in (60, 60, 60, 70, 70, 70)]
    torch.manual_seed(0)
    ids = torch.cat([torch.tensor(prompts), torch.randint(0, 256, (6, answer))], dim=1)
    mask, completion = torch.ones_like(ids), answer
    seen = mask[:, -completion:].bool()
    weights = torch.randn(6, completion)
    passes: list[tuple[int, int]] = []
    backbone = trainer.trained_policy.get_base_model().base_model
    backbone.register_forward_pre_hook(lambda _, args, given: passes.append(given["input_ids"].shape), with_kwargs=True)

    def gradients(logps: torch.Tensor) -> dict[str, torch.Tensor]:
        trainer.model.zero_grad()
        (logps * weights).sum().backward()  # type: ignore[no-untyped-call]
        return {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}

    found = trainer._with_shared_prompts(trainer.model, ids, mask, completion)
    trainer._shares_prompts = False
    expected = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, completion, compute_entropy=True)

    assert passes[:2] == [(1, 70), second_pass]
    for one, other in zip(found[:2], expected[:2], strict=True):
        assert torch.allclose(one[seen], other[seen], atol=1e-4)
    ours, theirs = gradients(found[0]), gradients(expected[0])
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], theirs[name], rtol=1e-3, atol=1e-4) for name in ours)


def test_a_short_prefix_is_not_worth_a_pass_of_its_own() -> None:
    ids = torch.tensor([[7, 8, 9, 1, 2], [7, 8, 6, 3, 4]])

    assert share_prompts(ids, torch.ones_like(ids), completion=2, padding=PAD).prefix == 0


def test_it_is_not_done_with_a_model_that_gives_other_values(base_model: Path, tmp_path: Path) -> None:
    """Attention to the last four tokens only: in the shared sequence these are other tokens."""
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=261,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_window=4,
        initializer_range=0.5,
        eos_token_id=257,
        bos_token_id=None,
    )
    MistralForCausalLM(config).save_pretrained(tmp_path / "model")
    from peft import LoraConfig, get_peft_model

    model = MistralForCausalLM.from_pretrained(tmp_path / "model")
    policy = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))

    assert not trainer_of(policy, base_model, tmp_path)._shares_prompts
    assert trainer_of(tiny_lora(base_model), base_model, tmp_path)._shares_prompts
