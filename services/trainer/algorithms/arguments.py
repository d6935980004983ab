"""From our hyperparameters to Transformers' arguments. Everything random is seeded; nothing is shuffled unasked."""

from __future__ import annotations

from typing import Any

import torch

from ratchet.models.loading import half_precision
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.hyperparameters import Hyperparameters

KEPT_CHECKPOINTS = 2


def training_arguments(inputs: TrainerInputs, hyperparameters: Hyperparameters) -> dict[str, Any]:
    """Return what every configuration of Transformers and TRL takes; batches and losses are the algorithm's.

    On a GPU the 16-bit format it has; on a CPU that of the weights.
    """
    half = half_precision(inputs.policy.device) if inputs.on_gpu else None
    checkpointing = hyperparameters.gradient_checkpointing
    return {
        "output_dir": str(inputs.folder),
        "learning_rate": inputs.learning_rate,
        "lr_scheduler_type": "linear",
        "warmup_steps": hyperparameters.warm_up_steps,
        "weight_decay": hyperparameters.weight_decay,
        "max_grad_norm": hyperparameters.max_grad_norm,
        "optim": "adamw_torch_fused",
        "seed": inputs.seed,
        "data_seed": inputs.seed,
        "remove_unused_columns": False,
        "use_cpu": not inputs.on_gpu,
        "bf16": half == torch.bfloat16,
        "fp16": half == torch.float16,
        "activation_checkpointing": inputs.on_gpu if checkpointing is None else checkpointing,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",  # run/checkpoints.py says when
        "save_total_limit": KEPT_CHECKPOINTS,
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": inputs.on_gpu,
    }
