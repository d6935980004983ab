"""Is an adapter fit for traffic? Files as published, right base model, plain LoRA an engine can load, finite weights.

Reads the folder only: no torch, no model. How well the adapter answers is the validation gate's question.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ratchet.adapters.lora_config import LoraConfig, read_lora_config
from ratchet.adapters.manifest import content_faults, read_card, read_manifest
from ratchet.adapters.safetensors_file import SafetensorsFile
from ratchet.service.errors import AdapterError
from schemas.messages.base import BaseModelIdentity
from schemas.records.adapter_card import AdapterCard

LINEAR_LAYERS = frozenset(
    {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj"),
        *("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "c_attn", "c_proj", "c_fc"),
        *("fc1", "fc2", "out_proj", "in_proj_qkvz", "in_proj_ba"),
    }
)
"""The linear layers of the usual decoders, by the names transformers gives them: Llama, Qwen, Phi and alike; GPT-NeoX,
Falcon and GPT-2; OPT and the linear attention of Qwen. Not lm_head and embeddings: not every engine can."""

UNSERVABLE_OPTIONS = {
    "use_dora": "DoRA",
    "modules_to_save": "whole modules saved beside the LoRA",
    "lora_bias": "a bias in the LoRA",
    "layer_replication": "replicated layers",
    "trainable_token_indices": "trained token embeddings",
    "target_parameters": "LoRA on bare parameters",
    "alora_invocation_tokens": "activated LoRA",
    "use_qalora": "QA-LoRA",
    "use_bdlora": "block-diagonal LoRA",
    "velora_config": "VeLoRA",
    "monteclora_config": "MonteCLoRA",
    "kasa_config": "KaSA",
    "arrow_config": "Arrow routing",
}
"""Options of PEFT's LoraConfig that change what is computed, in ways not every engine knows."""

PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal", "lora_ga")
"""Values of init_lora_weights that leave the base model's weights as they are."""

LORA_WEIGHT = re.compile(r"base_model\.model\.(?P<path>(?:[^.]+\.)*(?P<module>[^.]+))\.lora_(?P<side>[AB])\.weight")


@dataclass(frozen=True, slots=True)
class AdapterLimits:
    """What the engines take. `base` None: any; a revision is compared where both sides know theirs, else the name."""

    max_rank: int
    base: BaseModelIdentity | None = None
    target_modules: frozenset[str] = LINEAR_LAYERS


def check_adapter(folder: Path, limits: AdapterLimits) -> AdapterCard:
    """Its card, if it is fit for traffic. Raises AdapterError with every fault, each a sentence with what to do."""
    if faults := adapter_faults(folder, limits):
        raise AdapterError(f"adapter {folder.name} of agent {folder.parent.name} is refused: {'; '.join(faults)}")
    return read_card(folder)


def adapter_faults(folder: Path, limits: AdapterLimits) -> list[str]:
    """Every reason not to use it; empty if there is none. Reads every byte of the folder."""
    try:
        if faults := content_faults(folder, read_manifest(folder)):
            return faults
        config = read_lora_config(folder)
        return [
            *_base_faults(read_card(folder).base, limits.base),
            *_config_faults(config, limits),
            *_weight_faults(SafetensorsFile(folder / "adapter_model.safetensors"), config),
        ]
    except AdapterError as error:
        return [str(error)]


def _base_faults(trained_on: BaseModelIdentity, runs: BaseModelIdentity | None) -> Iterator[str]:
    if runs is None:
        return
    both_known = trained_on.revision is not None and runs.revision is not None
    if (trained_on.revision != runs.revision) if both_known else (trained_on.name != runs.name):
        yield (
            f"it was trained on {_named(trained_on)}, but the agent runs {_named(runs)}: train on that model, or give "
            f"the agent the other one back"
        )


def _named(base: BaseModelIdentity) -> str:
    return f"{base.name}@{base.revision[:12]}" if base.revision else base.name


def _config_faults(config: LoraConfig, limits: AdapterLimits) -> Iterator[str]:
    if config.peft_type != "LORA":
        yield f"it is {config.peft_type}, and only LoRA can be served: train a LoRA"
    if not 1 <= min(config.ranks) <= max(config.ranks) <= limits.max_rank:
        yield f"its rank is {max(config.ranks)}, and the engines take 1 to {limits.max_rank}: train with a smaller r"
    for option, meaning in UNSERVABLE_OPTIONS.items():
        if config.option(option):
            yield f"it uses {meaning} ({option}), which engines can't serve: train without"
    if config.bias != "none":
        yield f"it trains biases (bias={config.bias}), which engines can't serve: train with bias none"
    if config.init_lora_weights not in PLAIN_STARTS:
        yield f"its start {config.init_lora_weights!r} changed the base model's weights: convert it to a plain LoRA"
    if not config.targets:
        yield f"its target_modules are {config.target_modules!r}: name the layers one by one and save it again"
    if unknown := sorted(config.targets - limits.target_modules):
        yield f"it adapts {', '.join(unknown)}, which the engines don't know: train only the usual linear layers"


def _weight_faults(weights: SafetensorsFile, config: LoraConfig) -> Iterator[str]:
    """Every tensor is one half of a LoRA pair of the right rank on a target module, and finite."""
    if not weights.tensors:
        yield f"{weights.path} holds no weights: save the adapter again"
    pairs: dict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)
    for name, tensor in weights.tensors.items():
        match = LORA_WEIGHT.fullmatch(name)
        if match is None or match["module"] not in config.targets:
            yield f"it holds {name}, which is no LoRA weight of its target modules: save only the adapter"
            continue
        pairs[match["path"]][match["side"]] = tensor.shape
        if not weights.is_finite(name):
            yield f"{name} holds infinite numbers or NaN: the training diverged; train again with a lower learning rate"
    for path, sides in pairs.items():
        yield from _pair_faults(path, sides, config.rank(path))


def _pair_faults(path: str, sides: dict[str, tuple[int, ...]], rank: int) -> Iterator[str]:
    a, b = sides.get("A", ()), sides.get("B", ())
    if len(a) != 2 or len(b) != 2 or not a[0] == b[1] == rank:
        yield f"the LoRA of {path} has shapes A {a} and B {b}, which is no pair of rank {rank}: save it again"
