"""The policy that is trained: the base model with the parent's LoRA, or a fresh one. Saved as files anyone can load.

Plain LoRA on every linear layer but the head, which is what all engines serve.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import SafetensorError
from torch.distributed.tensor import DTensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from ratchet.adapters.check import check_lora, other_base
from ratchet.adapters.folder import CONFIG_NAME, CONTENT_FILES
from ratchet.adapters.limits import LINEAR_LAYERS, AdapterLimits
from ratchet.grammars.masks import Grammars
from ratchet.models.loading import LanguageModel, half_precision, peft_config
from ratchet.service.errors import AdapterError, TrainingRefused, one_line
from schemas.messages.base import BaseModelIdentity
from schemas.messages.work import BASE_VERSION
from services.trainer.algorithms.hyperparameters import Hyperparameters
from services.trainer.algorithms.plan import bucket, cut_to_fit
from services.trainer.algorithms.shared_prompts import FEWEST_SAVED, masked_logps, masks_of
from services.trainer.data.samples import TrainingSample
from services.trainer.data.support import SampleRatio, ratio_of

ADAPTER = "default"
"""PEFT's name for the adapter that is trained."""

TOKENS_AT_ONCE = 2_048
"""Through the model when samples are held against it: bounds the memory of the logits."""

Answer = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int, str], ...]]
"""The tokens of a prompt, and of an answer to it, and the grammars that it was held to."""


def make_policy(
    language_model: LanguageModel, parent: Path | None, hyperparameters: Hyperparameters, *, seed: int, max_rank: int
) -> Any:
    """A PeftModel whose only trainable weights are the adapter's, in float32.

    Raises TrainingRefused for a parent of another base model and for a LoRA that can't be made or served, AdapterError
    for a parent that can't be loaded.
    """
    torch.manual_seed(seed)
    if parent is not None:
        return _continue_adapter(language_model, parent, max_rank)
    if hyperparameters.lora_rank > max_rank:
        raise TrainingRefused(
            f"lora_rank is {hyperparameters.lora_rank}, and the engines take {max_rank} at most "
            f"(RATCHET_ADAPTER_MAX_RANK)"
        )
    targets = hyperparameters.lora_targets
    if targets != "all-linear" and (unknown := sorted(set(targets) - LINEAR_LAYERS)):
        raise TrainingRefused(f"lora_targets has {', '.join(unknown)}, which the engines don't know")
    config = LoraConfig(
        r=hyperparameters.lora_rank,
        lora_alpha=int(hyperparameters.lora_alpha),
        lora_dropout=0.0,
        use_rslora=hyperparameters.lora_rslora,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(language_model.model, config)
    except ValueError as error:
        raise TrainingRefused(one_line(f"lora_targets can't be used: {error}")) from error


def _continue_adapter(language_model: LanguageModel, parent: Path, max_rank: int) -> Any:
    if (trained_on := other_base(parent, language_model.identity.revision)) is not None:
        raise TrainingRefused(
            f"the parent in {parent} was trained on {trained_on}, and the trainer has {language_model.identity}: give "
            f"the trainer that model (RATCHET_TRAINER_MODEL)"
        )
    config = peft_config(check_lora(parent, AdapterLimits(max_rank)), trainable=True)
    try:
        return PeftModel.from_pretrained(language_model.model, str(parent), is_trainable=True, config=config)
    except (ValueError, RuntimeError, KeyError, TypeError, OSError, SafetensorError) as error:
        raise AdapterError(one_line(f"the parent in {parent} can't be loaded: {error}")) from error


def separate_head(policy: Any) -> None:
    """A head that shares its weights with the embeddings gets its own: TRL casts no other of a PeftModel to float32.

    Raises TrainingRefused for a model that is spread over processes.
    """
    model = policy.get_base_model()
    head = model.get_output_embeddings()
    if isinstance(head.weight, DTensor):
        raise TrainingRefused("cast_lm_head_to_fp32 and FSDP can't be had together: leave one out")
    if model.config.tie_word_embeddings:
        head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
        model.config.tie_word_embeddings = False


def sample_ratios(
    policy: Any,
    samples: Sequence[TrainingSample],
    *,
    temperature: float,
    on_share: Callable[[float], None] = lambda share: None,
    grammars: Grammars | None = None,
) -> list[SampleRatio]:
    """Return how the policy's probabilities of some samples relate to the logged ones, in their order."""
    logps = token_logps(policy, samples, temperature, on_share, grammars)
    return [_ratio(sample, of_one) for sample, of_one in zip(samples, logps, strict=True)]


@torch.no_grad()
def token_logps(
    policy: Any,
    samples: Sequence[TrainingSample],
    temperature: float,
    on_share: Callable[[float], None] = lambda share: None,
    grammars: Grammars | None = None,
) -> list[torch.Tensor]:
    """The policy's log-probabilities of each sample's completion. In 16 bits on a GPU, as in training. With `grammars`,
    those among the tokens that each sample's grammar allowed.

    In their order. Samples of like lengths and prompts go through together: equal answers to a prompt once, and so what
    all prompts of a part begin with. `on_share` is told how much of the tokens is done.
    """
    was_training = policy.training
    policy.eval()
    answers = {_key(sample): sample for sample in samples}
    keys = sorted(answers, key=lambda key: (bucket(answers[key].length), key))
    logps: dict[Answer, torch.Tensor] = {}
    done, tokens = 0, sum(sample.length for sample in answers.values())
    for part in cut_to_fit([(0, answers[key].length) for key in keys], TOKENS_AT_ONCE):
        together = [answers[key] for key in keys[part]]
        logps |= zip(keys[part], _logps(policy, together, temperature, grammars), strict=True)
        done += sum(sample.length for sample in together)
        on_share(done / tokens)
    policy.train(was_training)
    return [logps[_key(sample)] for sample in samples]


def _key(sample: TrainingSample) -> Answer:
    return tuple(sample.prompt), tuple(sample.completion), sample.grammars


def _logps(
    policy: Any, samples: Sequence[TrainingSample], temperature: float, grammars: Grammars | None
) -> Iterator[torch.Tensor]:
    """Yield the log-probabilities of each sample's completion, token by token."""
    begun = _begin_alike([sample.prompt for sample in samples])
    rows = [torch.tensor([*sample.prompt, *sample.completion], device=policy.device) for sample in samples]
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    first = min(len(sample.prompt) for sample in samples) - 1
    with torch.autocast(policy.device.type, half_precision(policy.device), enabled=policy.device.type != "cpu"):
        cache = _prefix(policy, rows[0][:begun], len(rows)) if begun else None
        begun = begun if cache is not None else 0
        logits = policy(
            input_ids=pad_sequence([row[begun:] for row in rows], batch_first=True),
            attention_mask=mask,
            past_key_values=cache,
            use_cache=cache is not None,
            logits_to_keep=mask.size(1) - first,
        ).logits
    begun = mask.size(1) - logits.size(1)
    for sample, ids, row in zip(samples, rows, logits, strict=True):
        begin = len(sample.prompt)
        scaled = row[begin - 1 - begun : len(ids) - 1 - begun].float() / temperature
        if grammars is not None and sample.grammars:
            predicted = masked_logps(scaled, torch.from_numpy(masks_of(grammars, sample)))
        else:
            predicted = torch.log_softmax(scaled, -1)
        yield predicted.gather(1, ids[begin:, None])[:, 0].cpu()


def _begin_alike(prompts: Sequence[Sequence[int]]) -> int:
    """Count the tokens all prompts begin with, short of a whole prompt; 0 where it is not worth a pass of its own."""
    alike = [tuple(prompt) for prompt in prompts]
    low, high = min(alike), max(alike)
    length = next((place for place, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))
    length = min(length, min(map(len, prompts)) - 1)
    return length if (len(prompts) - 1) * length >= FEWEST_SAVED else 0


def _prefix(policy: Any, ids: torch.Tensor, rows: int) -> DynamicCache | None:
    """Keys and values of a beginning, for each of the rows; None for models that keep something else of the past."""
    cache = policy(input_ids=ids[None], use_cache=True, logits_to_keep=1).past_key_values
    if not isinstance(cache, DynamicCache) or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return None
    cache.batch_repeat_interleave(rows)
    return cache


def _ratio(sample: TrainingSample, logps: torch.Tensor) -> SampleRatio:
    difference = logps - torch.tensor(sample.logprobs)
    if sample.sampled is not None:
        difference = difference[torch.tensor(sample.sampled, dtype=torch.bool)]
    return ratio_of(sample.version, difference.tolist())


def save_policy(policy: Any, base: BaseModelIdentity, folder: Path) -> dict[str, Path | bytes]:
    """Write the adapter into the folder; the files of an adapter, by name. Equal weights give equal bytes.

    Raises TrainingRefused for one that the gate would refuse, as after a training that diverged.
    """
    save_adapter(policy, folder)
    files = {name: folder / name for name in CONTENT_FILES}
    config = json.loads(files[CONFIG_NAME].read_text())
    files[CONFIG_NAME].write_bytes(settled_config(config, base))
    try:
        check_lora(folder, AdapterLimits())
    except AdapterError as error:
        raise TrainingRefused(f"nothing was published: {error}") from error
    return dict(files)


def save_adapter(policy: Any, folder: Path) -> None:
    """The trained adapter alone: no frozen reference, no embeddings (PEFT would look for the base model on the hub).

    Its weights are whole in each process, and given by name: asked for all weights, a base model that is spread over
    processes would be put together in every one of them.
    """
    weights = {name: values.detach() for name, values in policy.named_parameters() if ".lora_" in name}
    policy.save_pretrained(str(folder), state_dict=weights, selected_adapters=[ADAPTER], save_embedding_layers=False)


def settled_config(config: dict[str, Any], base: BaseModelIdentity) -> bytes:
    """PEFT's configuration without what differs from machine to machine: the order of a set, a path.

    Layers are named by the last part of their names, as engines know them; all of a name are adapted.
    """
    settled = config | {
        "target_modules": sorted({target.rpartition(".")[2] for target in config["target_modules"]}),
        "base_model_name_or_path": base.name,
        "revision": base.revision,
    }
    return json.dumps(settled, indent=2, sort_keys=True).encode() + b"\n"


def parent_folder(adapters_dir: Path, agent_id: str, version: str) -> Path | None:
    """None for the base model."""
    return None if version == BASE_VERSION else adapters_dir / agent_id / version
