"""`ratchet train --plan`: memory, tokens and hours of a run by the model's configuration alone; nothing is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from rich.console import Group
from rich.text import Text

from ratchet.models.shape import ModelShape, known_shape
from ratchet.runs.run import LEAST_GROUPS
from ratchet.service.settings import FleetSettings
from schemas.messages.base import explain
from schemas.records.demonstration import DemonstrationSource
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import UsageError, table
from services.cli.train.estimate import GB, PEAK_TFLOPS, UTILISATION, Setup, Workload, hours, memory, remedies

GPU_MEMORY_GB, SAMPLES, TOKENS = 24.0, 2_048, "512+256"
PLANNED = ("grpo", "masked-grpo")
"""Algorithms that go through the model as it is counted here; their knobs have the same defaults."""


class PlannedKnobs(BaseModel):
    """The hyperparameters that memory and hours depend on, as the trainer has them; a test holds them against its."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    lora_rank: int = Field(16, ge=1, le=512)
    lora_targets: Literal["all-linear"] | list[str] = "all-linear"
    micro_batch_tokens: int | None = Field(None, ge=1)
    gradient_checkpointing: bool | None = None
    beta: float = Field(0.0, ge=0)
    batch: int = Field(32, ge=1)
    steps: int = Field(128, ge=1)
    epochs: int | None = Field(None, ge=1, le=100)
    min_groups: int = Field(LEAST_GROUPS, ge=1)
    demonstrations: tuple[DemonstrationSource, ...] = ()


def plan_run(
    access: FleetAccess,
    given: Mapping[str, Any],
    *,
    model: str | None,
    gpus: int | None,
    gpu_memory: float | None,
    samples: int | None,
    tokens: str | None,
    agent: str | None,
    algorithm: str,
) -> dict[str, Any]:
    """Plan with what was typed; None is what the settings say, or a default. `given`: hyperparameters.

    Raises UsageError for options that can't be, EngineError for a model whose size is not known.
    """
    if algorithm not in PLANNED:
        raise UsageError(
            f"{algorithm} can't be planned: counted are {', '.join(PLANNED)}, whose answers share a group's "
            "prompt; it takes others, in other steps, or with a reference beside them. Plan grpo for the base model's "
            "part, and see the rest in ten steps of a run"
        )
    file = os.environ.get("RATCHET_TRAINER_ACCELERATE_CONFIG")
    if file and gpus is None:
        raise UsageError(
            f"{file} (RATCHET_TRAINER_ACCELERATE_CONFIG) has the number of processes, and is not read here: say it "
            "with --gpus, and RATCHET_TRAINER_FSDP=true where its distributed_type is FSDP"
        )
    name = model or _model_of(access, agent)
    shape = known_shape(name)
    knobs = _knobs(given)
    prompt, answer = _lengths(tokens or TOKENS)
    setup = Setup(
        gpus=_setting("PROCESSES", int, 1) if gpus is None else gpus,
        rank=knobs.lora_rank,
        targets=None if knobs.lora_targets == "all-linear" else frozenset(knobs.lora_targets),
        tokens=knobs.micro_batch_tokens,
        checkpointing=knobs.gradient_checkpointing,
        four_bits=_setting("WEIGHTS", Literal["full", "4bit"], "full") == "4bit",
        fsdp=_setting("FSDP", bool, False),
        reference=knobs.beta > 0,
    )
    if setup.four_bits and setup.fsdp:
        raise UsageError("weights in 4 bits can't be spread: leave out RATCHET_TRAINER_WEIGHTS=4bit or _FSDP=true")
    workload = Workload(
        samples=samples or SAMPLES,
        prompt=prompt,
        answer=answer,
        batch=knobs.batch,
        steps=knobs.steps,
        epochs=knobs.epochs,
    )
    account = _account(name, shape, setup, workload, gpu_memory or GPU_MEMORY_GB)
    return account | {
        "demonstrations": {"sources": list(knobs.demonstrations), "from": knobs.min_groups},
        "not_counted": sorted(given.keys() - PlannedKnobs.model_fields.keys()),
        "not_read": [file] if file else [],
    }


def _account(name: str, shape: ModelShape, setup: Setup, workload: Workload, gigabytes: float) -> dict[str, Any]:
    parts = memory(shape, setup)
    longest = workload.prompt + workload.answer
    fits = parts.fits(gigabytes) if setup.gpus else None
    changes = [] if fits is not False else [told for told, _ in remedies(shape, setup, gigabytes, longest)]
    cache = 4 * shape.layers * shape.keys
    return {
        "model": name,
        "parameters": shape.parameters,
        "adapter_parameters": shape.lora_parameters(setup.rank, setup.targets),
        "gpus": setup.gpus,
        "micro_batch_tokens": setup.at_once,
        "gradient_checkpointing": setup.recomputes,
        "memory_gb": {part: round(size / GB, 3) for part, size in (asdict(parts) | {"peak": parts.peak}).items()},
        "fits": fits,
        "gpu_memory_gb": gigabytes if setup.gpus else None,
        "change": changes,
        "steps": workload.steps_in_all,
        "passes": workload.passes,
        "tokens_per_step": round(workload.tokens / workload.steps_in_all),
        "tokens": workload.tokens,
        "hours": round(hours(shape, setup, workload), 3) if setup.gpus else None,
        "assumed": {"tflops": PEAK_TFLOPS, "utilisation": UTILISATION} | asdict(workload),
        "vllm": {"weights_gb": round(2 * shape.parameters / GB, 3), "cache_mb_per_1000_tokens": round(cache / 1e3, 1)},
    }


def render_plan(plan: Mapping[str, Any]) -> Group:
    """A table of the memory, and sentences for the rest."""
    parts, assumed = plan["memory_gb"], plan["assumed"]
    where = f"on each of {plan['gpus']} GPUs" if plan["gpus"] > 1 else "on the GPU" if plan["gpus"] else "on the CPU"
    rows = table("memory " + where, "GB")
    for part, meaning in MEANING.items():
        rows.add_row(meaning, f"{parts[part]:,.2f}")
    said = [
        f"{plan['model']}: {plan['parameters']:,} parameters, {plan['adapter_parameters']:,} of the adapter; "
        f"{plan['micro_batch_tokens']:,} tokens at once, activations "
        f"{'recomputed' if plan['gradient_checkpointing'] else 'kept'}",
        f"{assumed['samples']:,} samples of {assumed['prompt']} + {assumed['answer']} tokens in groups of "
        f"{assumed['group']}, {plan['passes']} passes: {plan['steps']:,} steps of {plan['tokens_per_step']:,} tokens",
    ]
    if plan["hours"] is not None:
        said.append(
            f"{plan['hours']:.2f} hours at {assumed['utilisation']:.0%} of {assumed['tflops']:.0f} TFLOP/s a GPU (A100)"
        )
    if (shown := plan["demonstrations"])["sources"]:
        said.append(
            f"where the log has {shown['from']} demonstrations or more (by {' or '.join(shown['sources'])}), those "
            "alone teach, in less memory and time than is counted here; ratchet train --dry-run counts them"
        )
    served = plan["vllm"]
    said.append(
        f"vLLM beside it takes {served['weights_gb']:.2f} GB for the weights in 16 bits and "
        f"{served['cache_mb_per_1000_tokens']:.0f} MB of cache for each 1,000 tokens in flight"
    )
    if plan["not_counted"]:
        said.append(
            f"not counted: {', '.join(plan['not_counted'])}. Of hyperparameters these are: "
            f"{', '.join(PlannedKnobs.model_fields)}"
        )
    said.extend(
        f"not read: {file}; counted are --gpus and RATCHET_TRAINER_FSDP, whatever it says" for file in plan["not_read"]
    )
    return Group(rows, *map(Text, said), _verdict(plan))


MEANING = {
    "weights": "the base model's weights",
    "adapter": "adapter, its gradients and AdamW",
    "activations": "activations",
    "head": "head: hidden states and a tile of logits",
    "match": "or, before the first step: logits held against the log",
    "peak": "at the worst moment",
}


def _verdict(plan: Mapping[str, Any]) -> Text:
    if plan["fits"] is None:
        return Text("hours on a CPU are seen after ten steps")
    if plan["fits"]:
        return Text(f"it fits into {plan['gpu_memory_gb']:g} GB", style="green")
    instead = "; or ".join(plan["change"][:3]) or "a larger GPU, or a smaller model"
    return Text(f"it does not fit into {plan['gpu_memory_gb']:g} GB; it would with {instead}", style="red")


def _model_of(access: FleetAccess, agent: str | None) -> str:
    """Return it as the trainer has it: one model, or one by agent."""
    if named := os.environ.get("RATCHET_TRAINER_MODEL"):
        pairs = dict(pair.strip().split("=", 1) for pair in named.split(",") if "=" in pair)
        if not pairs:
            return named
        if (known := pairs.get(agent or access.agents[0])) is not None:
            return known
    elif access.record and access.record.options.engine == "transformers":
        return access.record.options.model
    raise UsageError("name the model: ratchet train --plan --model qwen2.5-1.5b")


def _knobs(given: Mapping[str, Any]) -> PlannedKnobs:
    """Return them: what is given goes before the settings' defaults, as in a run."""
    defaults = {"demonstrations": FleetSettings.read().demonstrations} | _setting("HYPERPARAMETERS", dict[str, Any], {})
    try:
        return PlannedKnobs.model_validate(defaults | dict(given))
    except ValidationError as error:
        raise UsageError(f"it can't be planned: {explain('set of hyperparameters', error)}") from None


def _setting(name: str, kind: Any, default: Any) -> Any:
    """Read one of the trainer's settings, which are the service's own: read as it reads them."""
    variable = f"RATCHET_TRAINER_{name}"
    if (text := os.environ.get(variable)) is None:
        return default
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_json(text) if kind == dict[str, Any] else adapter.validate_python(text)
    except ValidationError as error:
        raise UsageError(f"{variable} is {text!r}: {error.errors()[0]['msg']}") from None


def _lengths(tokens: str) -> tuple[int, int]:
    prompt, _, answer = tokens.partition("+")
    if not (prompt.isdecimal() and answer.isdecimal()):
        raise UsageError(f"--tokens is {tokens!r}; it is those of a prompt and of an answer, as in 512+256")
    return int(prompt), int(answer)
