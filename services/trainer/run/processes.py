"""What `accelerate launch` was told about this run's processes, as far as the trainer follows it.

FSDP: Transformers spreads the base model while it loads it, so that no process ever holds all of it; the adapter, which
is small, is whole in each, and its gradients are averaged. So it is saved, and taken up again, as on one GPU.
"""

from __future__ import annotations

import os

from ratchet.service.errors import TrainingRefused
from services.trainer.settings import TrainerSettings

WHAT_INSTEAD = (
    "FSDP spreads the base model the same way: distributed_type FSDP in the file, or RATCHET_TRAINER_FSDP=true"
)


def is_spread(settings: TrainerSettings) -> bool:
    """Whether the base model is to be spread over the processes. Raises TrainingRefused for what can't be done.

    Told once: Accelerate, which would do it a second time, is told that there is nothing to do.
    """
    if _told("ACCELERATE_USE_DEEPSPEED"):
        raise TrainingRefused(f"the trainer does not run under DeepSpeed (ZeRO): {WHAT_INSTEAD}")
    if _told("ACCELERATE_USE_MEGATRON_LM"):
        raise TrainingRefused(f"the trainer does not run under Megatron-LM: {WHAT_INSTEAD}")
    spread = _told("ACCELERATE_USE_FSDP")
    if spread and _told("FSDP_OFFLOAD_PARAMS"):
        raise TrainingRefused(
            "weights that wait in main memory (fsdp_offload_params) are not supported: take more processes, or one "
            "with RATCHET_TRAINER_WEIGHTS=4bit"
        )
    if spread and settings.trainer_weights != "full":
        raise TrainingRefused(
            "weights in 4 bits can't be spread over processes: leave out FSDP or RATCHET_TRAINER_WEIGHTS=4bit"
        )
    os.environ["ACCELERATE_USE_FSDP"] = "false"
    return spread


def _told(name: str) -> bool:
    return os.environ.get(name, "false").lower() in ("true", "1")
