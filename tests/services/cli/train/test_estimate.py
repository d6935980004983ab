"""What a run takes: its parts held against PyTorch's own count, and what helps where it does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from ratchet.models.shape import KNOWN_SHAPES, ModelShape
from services.cli.train.estimate import GB, Setup, Workload, hours, memory, remedies

SEVEN = KNOWN_SHAPES["qwen2.5-7b"]


@pytest.mark.parametrize("inner", [128, 384])
def test_activations_are_what_autograd_keeps(inner: int) -> None:
    """On a CPU, under a mask as the trainer's; every storage once; within a twentieth."""
    config = LlamaConfig(
        hidden_size=96,
        intermediate_size=inner,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
    )
    model = LlamaForCausalLM(config)
    policy = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    own = {weights.untyped_storage().data_ptr() for weights in policy.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    rows, length = 4, 256
    ids = torch.randint(0, 64, (rows, length))
    mask = torch.zeros(rows, 1, length, length)
    own.add(mask.untyped_storage().data_ptr())
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = policy.get_base_model().model(input_ids=ids, attention_mask=mask, use_cache=False)

    shape = ModelShape(96, inner, 4, 4, 2, 24, 64, tied=False)
    expected = memory(shape, Setup(gpus=0, rank=8, tokens=rows * length)).activations
    assert output.last_hidden_state.requires_grad
    assert expected == pytest.approx(sum(kept.values()), rel=0.05)


def test_weights_in_four_bits_and_weights_spread_over_gpus_take_less() -> None:
    whole, four, spread = (
        memory(SEVEN, setup).weights / GB for setup in (Setup(), Setup(four_bits=True), Setup(gpus=4, fsdp=True))
    )

    assert whole == pytest.approx(15.23, abs=0.01)
    assert four == pytest.approx(5.69, abs=0.1)  # 6.5 billion in 4 bits, embeddings and head in 16
    assert spread == pytest.approx(15.23 / 4 + 2.0, abs=0.3)  # and what is put together while it is used


def test_what_does_not_fit_is_told_what_would_and_that_does() -> None:
    setup = Setup(checkpointing=False)
    assert not memory(SEVEN, setup).fits(24)

    found = dict(remedies(SEVEN, setup, 24, longest=768))

    assert next(iter(found)).startswith("--set gradient_checkpointing=true")
    assert any("RATCHET_TRAINER_WEIGHTS=4bit" in told for told in found)
    assert any("RATCHET_TRAINER_PROCESSES=2" in told for told in found)
    assert all(memory(SEVEN, changed).fits(24) and changed.at_once >= 768 for changed in found.values())
    assert not list(remedies(SEVEN, setup, 4, longest=768))


def test_hours_follow_the_operations() -> None:
    work = Workload(samples=2048, prompt=512, answer=256)
    kept, again = (hours(SEVEN, Setup(checkpointing=checkpointing), work) for checkpointing in (False, True))

    assert (work.passes, work.steps_in_all, work.tokens) == (2, 128, 2 * (2048 * 256 + 256 * 512))
    assert again == pytest.approx(1.5 * kept)
    assert hours(SEVEN, Setup(gpus=4, checkpointing=True), work) == pytest.approx(again / 4)
    assert again == pytest.approx(6 * 7.616e9 * work.tokens / (312e12 * 0.4) / 3600, rel=1e-3)


def test_passes_and_sizes_are_the_trainers() -> None:
    from services.trainer.algorithms.hyperparameters import GrpoHyperparameters

    knobs = GrpoHyperparameters()
    for samples in (60, 512, 2048, 32_768):
        assert Workload(samples=samples).passes == knobs.passes(samples)
    for gpus in (0, 1):
        assert Setup(gpus=gpus).at_once == knobs.tokens_at_once(on_gpu=gpus > 0)
    assert replace(Setup(), rank=knobs.lora_rank) == Setup()
