"""`ratchet train --plan`: memory, tokens and hours of a run by the model's configuration alone; nothing is loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.text import Text

from ratchet.cli.fleet.folder import FleetAccess
from ratchet.cli.terminal import UsageError, table
from ratchet.models.shape import ModelShape, known_shape
from ratchet.training_runs.estimate import (
    GB,
    PEAK_TFLOPS,
    UTILISATION,
    Setup,
    Workload,
    hours,
    memory,
    remedies,
)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """As typed. `tokens`: those of a prompt and of an answer, as 512+256."""

    model: str | None
    gpus: int
    gpu_memory: float
    samples: int
    tokens: str
    assignments: Sequence[str]


def plan_run(options: PlanOptions, access: FleetAccess) -> dict[str, Any]:
    """Raises UsageError for options that can't be, EngineError for a model whose size is not known."""
    name = options.model or os.environ.get("RATCHET_TRAINER_MODEL") or _model_of(access)
    shape = known_shape(name)
    knobs = _knobs(options.assignments)
    prompt, answer = _lengths(options.tokens)
    setup = Setup(
        gpus=options.gpus,
        rank=int(knobs.get("lora_rank", 16)),
        targets=frozenset(knobs["lora_targets"]) if isinstance(knobs.get("lora_targets"), list) else None,
        tokens=knobs.get("micro_batch_tokens"),
        checkpointing=knobs.get("gradient_checkpointing"),
        four_bits=os.environ.get("RATCHET_TRAINER_WEIGHTS") == "4bit",
        fsdp=os.environ.get("RATCHET_TRAINER_FSDP", "").lower() in ("1", "true"),
        reference=bool(knobs.get("beta", 0)),
    )
    workload = Workload(
        samples=options.samples,
        prompt=prompt,
        answer=answer,
        batch=int(knobs.get("batch", 32)),
        steps=int(knobs.get("steps", 128)),
        epochs=knobs.get("epochs"),
    )
    return _account(name, shape, setup, workload, options.gpu_memory)


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
    served = plan["vllm"]
    said.append(
        f"vLLM beside it takes {served['weights_gb']:.2f} GB for the weights in 16 bits and "
        f"{served['cache_mb_per_1000_tokens']:.0f} MB of cache for each 1,000 tokens in flight"
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


def _model_of(access: FleetAccess) -> str:
    known = access.record.options.model if access.record and access.record.options.engine == "transformers" else None
    if known is None:
        raise UsageError("name the model: ratchet train --plan --model qwen2.5-1.5b")
    return known


def _knobs(assignments: Sequence[str]) -> dict[str, Any]:
    found = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _lengths(tokens: str) -> tuple[int, int]:
    prompt, _, answer = tokens.partition("+")
    if not (prompt.isdecimal() and answer.isdecimal()):
        raise UsageError(f"--tokens is {tokens!r}; it is those of a prompt and of an answer, as in 512+256")
    return int(prompt), int(answer)
