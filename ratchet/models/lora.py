"""The configuration of a LoRA for PEFT, made of what was checked and of nothing else that a file may say.

PEFT runs the keys of patterns as regular expressions and imports modules that a configuration names; so it never reads
an adapter's own file.
"""

from __future__ import annotations

import re
from typing import TypeVar

import peft

from ratchet.adapters.lora_config import LoraConfig, written_out

T = TypeVar("T")


def peft_config(checked: LoraConfig, *, trainable: bool) -> peft.LoraConfig:
    """Return peft's form of a configuration that ratchet/adapters/check.py found no fault with.

    The weights are to be loaded over it.
    """
    return peft.LoraConfig(
        task_type="CAUSAL_LM",
        inference_mode=not trainable,
        r=checked.r,
        lora_alpha=checked.lora_alpha,
        use_rslora=checked.use_rslora,
        lora_dropout=checked.lora_dropout,
        target_modules=checked.target_modules,
        exclude_modules=checked.exclude_modules or None,
        layers_to_transform=checked.layers_to_transform,
        fan_in_fan_out=checked.fan_in_fan_out,
        rank_pattern=_escape_pattern(checked.rank_pattern),
        alpha_pattern=_escape_pattern(checked.alpha_pattern),
    )


def _escape_pattern(pattern: dict[str, T] | None) -> dict[str, T]:
    return {re.escape(written_out(key)): value for key, value in (pattern or {}).items()}
