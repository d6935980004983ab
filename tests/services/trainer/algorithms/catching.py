"""The gradient of a step as the optimiser gets it, and comparing it with another."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback

Gradients = dict[str, torch.Tensor]


class Catch(TrainerCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.gradients: Gradients = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **given: Any) -> None:
        self.gradients = gradients_of(model)


def gradients_of(policy: Any) -> Gradients:
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


def assert_same(found: Gradients, expected: Gradients) -> None:
    assert found.keys() == expected.keys()
    assert max(gradient.abs().max() for gradient in expected.values()) > 1e-3
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, rtol=1e-3, atol=1e-6), name
