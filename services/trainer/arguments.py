"""From our hyperparameters to TRL's configuration. Everything random is seeded; nothing is shuffled behind our back."""

from __future__ import annotations

from typing import Any

from trl import GRPOConfig

from services.trainer.algorithm import TrainerInputs
from services.trainer.hyperparameters import Hyperparameters

KEPT_CHECKPOINTS = 2


def training_arguments(course: TrainerInputs, hyperparameters: Hyperparameters, **loss: Any) -> GRPOConfig:
    """float32 on a CPU, where bfloat16 is slower and its log-probabilities are off; bfloat16 on a GPU."""
    checkpointing = hyperparameters.gradient_checkpointing
    return GRPOConfig(
        output_dir=str(course.folder),
        num_train_epochs=1,  # the plan holds all epochs
        per_device_train_batch_size=2,  # TRL wants num_generations to divide it; the plan makes the batches
        num_generations=2,
        steps_per_generation=1,
        gradient_accumulation_steps=course.plan.accumulation,
        max_completion_length=max(len(sample.completion) for sample in course.samples),
        temperature=course.temperature,
        learning_rate=course.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=hyperparameters.warm_up_steps,
        weight_decay=hyperparameters.weight_decay,
        max_grad_norm=hyperparameters.max_grad_norm,
        optim="adamw_torch_fused",
        seed=course.seed,
        data_seed=course.seed,
        shuffle_dataset=False,
        disable_dropout=True,
        remove_unused_columns=False,
        use_cpu=not course.on_gpu,
        bf16=course.on_gpu,
        activation_checkpointing=course.on_gpu if checkpointing is None else checkpointing,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=10**9,  # checkpoints.py says when
        save_total_limit=KEPT_CHECKPOINTS,
        report_to=[],
        disable_tqdm=True,
        dataloader_num_workers=0,
        dataloader_pin_memory=course.on_gpu,
        **loss,
    )
