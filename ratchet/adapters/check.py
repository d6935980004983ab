"""Is an adapter fit for traffic? Files as published, right base model, plain LoRA an engine can load, sound weights.

The one validator: the gate, the agent before it loads, the command line and the trainer ask here. Every read is bounded
and every reason short, whatever lies in the folder. Reads only: no torch, no model. How well the adapter answers is the
validation gate's question.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from ratchet.adapters.folder import WEIGHTS_NAME
from ratchet.adapters.limits import LARGEST_NUMBER, LARGEST_SCALING, MOST_PATTERNS, AdapterLimits
from ratchet.adapters.lora_config import MODULE_PATH, LoraConfig, read_lora_config
from ratchet.adapters.manifest import changed_files, file_faults, read_card, read_manifest
from ratchet.adapters.safetensors_file import SafetensorsFile
from ratchet.service.errors import AdapterError, one_line
from schemas.messages.base import BaseModelIdentity
from schemas.records.adapter_card import AdapterCard

UNSERVABLE_OPTIONS = {
    "use_dora": "DoRA",
    "modules_to_save": "whole modules saved beside the LoRA",
    "lora_bias": "a bias in the LoRA",
    "layer_replication": "replicated layers",
    "layers_pattern": "a pattern for layers",
    "trainable_token_indices": "trained token embeddings",
    "target_parameters": "LoRA on bare parameters",
    "alora_invocation_tokens": "activated LoRA",
    "megatron_config": "Megatron's layers",
    "use_qalora": "QA-LoRA",
    "use_bdlora": "block-diagonal LoRA",
    "velora_config": "VeLoRA",
    "monteclora_config": "MonteCLoRA",
    "kasa_config": "KaSA",
    "arrow_config": "Arrow routing",
}
"""Options of PEFT's LoraConfig that change what is computed, in ways not every engine knows, or import other code."""

IDLE_OPTIONS = frozenset(
    {
        *("auto_mapping", "base_model_name_or_path", "peft_version", "revision", "task_type", "inference_mode"),
        *("megatron_core", "qalora_group_size", "eva_config", "corda_config", "lora_ga_config", "loftq_config"),
        *("runtime_config", "ensure_weight_tying"),
    }
)
"""Options that change nothing of what a trained adapter computes. Any other that is unknown here must be empty."""

PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal", "lora_ga")
"""Values of init_lora_weights that leave the base model's weights as they are."""

LORA_WEIGHT = re.compile(r"base_model\.model\.(?P<path>(?:[^.]+\.)*(?P<module>[^.]+))\.lora_(?P<side>[AB])\.weight")


MOST_FAULTS = 5
LONGEST_LIST = 900
"""Characters, which leaves room for whose faults they are."""


def check_adapter(folder: Path, limits: AdapterLimits) -> AdapterCard:
    """Its card, if it is fit for traffic. Raises AdapterError with its faults, each a sentence with what to do."""
    if faults := adapter_faults(folder, limits):
        refused = f"adapter {folder.name} of agent {folder.parent.name} is refused: {'; '.join(faults)}"
        raise AdapterError(one_line(refused))
    return read_card(folder)


def check_lora(folder: Path, limits: AdapterLimits) -> LoraConfig:
    """The configuration, if it and the weights are fit for traffic; for a folder that is not published, or not yet.

    Raises AdapterError with its faults.
    """
    try:
        config = read_lora_config(folder)
        faults = shorten_faults([*_config_faults(config, limits), *_weight_faults(folder, config)])
    except OSError as error:
        raise AdapterError(one_line(f"the adapter in {folder} can't be read ({error}): restore it")) from None
    if faults:
        raise AdapterError(one_line(f"the adapter in {folder} is refused: {'; '.join(faults)}"))
    return config


def adapter_faults(folder: Path, limits: AdapterLimits) -> list[str]:
    """Return the first few reasons not to use it; empty if there is none. Reads every byte of the folder."""
    try:
        manifest = read_manifest(folder)
        if faults := file_faults(folder, manifest) or list(islice(changed_files(folder, manifest), MOST_FAULTS)):
            return shorten_faults(faults)
        config = read_lora_config(folder)
        other = base_fault(read_card(folder).base, limits.base)
        faults = [*([other] if other else ()), *_config_faults(config, limits)]
        return shorten_faults([*faults, *_weight_faults(folder, config)])
    except AdapterError as error:
        return [one_line(str(error))]
    except OSError as error:
        return [one_line(f"{folder} can't be read ({error}): restore it, or roll back")]


def shorten_faults(faults: Iterable[str]) -> list[str]:
    """The first few faults, together a reason of at most LONGEST_REASON characters, and how many more there are."""
    every = list(faults)
    longest = LONGEST_LIST // max(1, min(len(every), MOST_FAULTS))
    shown = [one_line(fault, longest) for fault in every[:MOST_FAULTS]]
    return [*shown, f"and {len(every) - MOST_FAULTS:,} more"] if len(every) > MOST_FAULTS else shown


def base_fault(trained_on: BaseModelIdentity | None, runs: BaseModelIdentity | None) -> str | None:
    """Say why an adapter of the one model does not fit the other; None where they are the same, or one is not known."""
    if trained_on is None or runs is None:
        return None
    both_known = trained_on.revision is not None and runs.revision is not None
    if (trained_on.revision == runs.revision) if both_known else (trained_on.name == runs.name):
        return None
    return (
        f"it was trained on {_format_base(trained_on)}, but the agent runs {_format_base(runs)}: "
        f"train on that model, or give the agent the other one back"
    )


def other_base(folder: Path, revision: str | None) -> str | None:
    """The model the adapter says it was trained on, as `name@revision`, where it is known to be of another revision.

    Raises AdapterError.
    """
    trained_on = read_card(folder).base
    return None if trained_on.revision in (None, revision) else _format_base(trained_on)


def _format_base(base: BaseModelIdentity) -> str:
    return f"{base.name}@{base.revision[:12]}" if base.revision else base.name


def _config_faults(config: LoraConfig, limits: AdapterLimits) -> Iterator[str]:
    if config.peft_type != "LORA":
        yield f"it is {config.peft_type}, and only LoRA can be served: train a LoRA"
    if not 1 <= min(config.ranks) <= max(config.ranks) <= limits.max_rank:
        yield f"its rank is {max(config.ranks)}, and the engines take 1 to {limits.max_rank}: train with a smaller r"
    for option, value in config.further.items():
        if option in UNSERVABLE_OPTIONS and value:
            yield f"it uses {UNSERVABLE_OPTIONS[option]} ({option}), which engines can't serve: train without"
        elif option not in UNSERVABLE_OPTIONS and option not in IDLE_OPTIONS and value:
            yield f"it has the option {one_line(option, 60)}, which is unknown here: train without"
    if config.bias != "none":
        yield f"it trains biases (bias={config.bias}), which engines can't serve: train with bias none"
    if config.init_lora_weights not in PLAIN_STARTS:
        yield f"its start {config.init_lora_weights!r} changed the base model's weights: convert it to a plain LoRA"
    if not config.targets:
        yield f"its target_modules are {config.target_modules!r}: name the layers one by one and save it again"
    if unknown := sorted(config.targets - limits.target_modules):
        yield f"it adapts {', '.join(unknown)}, which the engines don't know: train only the usual linear layers"
    yield from _pattern_faults(config)


def _pattern_faults(config: LoraConfig) -> Iterator[str]:
    """PEFT runs all of these as regular expressions, or compares them with each module of the model."""
    for key in config.bad_patterns:
        yield f"its pattern {one_line(key, 60)!r} is not the end of a module's path (letters, digits, _ and dots)"
    excluded = config.exclude_modules or []
    for path in [excluded] if isinstance(excluded, str) else excluded:
        if not isinstance(excluded, list) or not MODULE_PATH.fullmatch(path):
            yield f"its exclude_modules have {one_line(path, 60)!r}: list them by name, as the ends of their paths"
    targets = config.target_modules if isinstance(config.target_modules, list) else []
    if bad := [target for target in targets if not MODULE_PATH.fullmatch(target)]:
        yield f"its target_modules have {one_line(bad[0], 60)!r}: list them by name, as the ends of their paths"
    layers = config.layers_to_transform if isinstance(config.layers_to_transform, list) else []
    if max(map(len, (config.patterns, excluded, targets, layers))) > MOST_PATTERNS:
        yield f"it has more than {MOST_PATTERNS} patterns, target_modules, exclude_modules or layers: name fewer"


def _weight_faults(folder: Path, config: LoraConfig) -> Iterator[str]:
    """Every tensor is one half of a LoRA pair of the right rank on a target module, and its numbers are sound."""
    weights = SafetensorsFile(folder / WEIGHTS_NAME)
    if not weights.tensors:
        yield f"{weights.path} holds no weights: save the adapter again"
    pairs: dict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)
    for name, tensor in weights.tensors.items():
        match = LORA_WEIGHT.fullmatch(name)
        if match is None or match["module"] not in config.targets:
            yield f"it holds {one_line(name, 80)}, which is no LoRA weight of its target modules: save only the adapter"
            continue
        pairs[match["path"]][match["side"]] = tensor.shape
        if not weights.is_sound(name):
            yield (
                f"{name} holds numbers that are infinite, NaN or of {LARGEST_NUMBER:,} and more: the training "
                f"diverged; train again with a lower learning rate"
            )
    for path, sides in pairs.items():
        yield from _pair_faults(path, sides, config.rank(path))
        if config.ranks and min(config.ranks) > 0 and not abs(config.scaling(path)) <= LARGEST_SCALING:
            yield f"{path} is scaled by {config.scaling(path):g}, and may be by {LARGEST_SCALING:g}: lower lora_alpha"


def _pair_faults(path: str, sides: dict[str, tuple[int, ...]], rank: int) -> Iterator[str]:
    a, b = sides.get("A", ()), sides.get("B", ())
    if len(a) != 2 or len(b) != 2 or not a[0] == b[1] == rank:
        yield f"the LoRA of {path} has shapes A {a} and B {b}, which is no pair of rank {rank}: save it again"
