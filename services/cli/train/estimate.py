"""Estimates what a training run will take, before anybody pays for it: memory by its parts, tokens, hours. Pure.

Counted for LoRA in float32 on a frozen base model, as the trainer does it: the base model's weights have no gradients
and no optimiser. Left out: what PyTorch and the driver take for themselves (RESERVE stands for it), and dead space
between blocks of memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ratchet.models.shape import ModelShape

GPU_TOKENS, CPU_TOKENS = 16_384, 2_048
MOST_PASSES, FEWEST_PASSES = 8, 2
NF4_BYTES = 0.516
"""A weight: 4 bits, and 0.127 of its scales (Dettmers et al. 2023, arXiv:2305.14314, section 3)."""
LORA_BYTES = 16
"""A trained parameter: weight, gradient, and AdamW's two moments, all float32."""
HEAD_TOKENS, HEAD_WORDS = 4_096, 32_768
"""The tile of logits that TRL 1.16 has in memory at once; never all of them."""
MATCH_TOKENS = 2_048
"""Tokens whose logits are whole, when the log is held against the parent before the first step."""
RESERVE_GB, USABLE = 1.0, 0.94
PEAK_TFLOPS = 312.0
UTILISATION = 0.4
"""A100's dense bfloat16 peak by its data sheet, and the share of it a training reaches: 38 to 43 % are published for
Llama 3 (arXiv:2407.21783, table 4). A H100's peak is 3.2 times as high, a L4's 0.39 times."""
GB = 1e9


@dataclass(frozen=True, slots=True)
class Setup:
    """The way it is to be trained. `gpus` 0: on a CPU, in float32. `tokens`: through the model at once."""

    gpus: int = 1
    rank: int = 16
    targets: frozenset[str] | None = None
    tokens: int | None = None
    checkpointing: bool | None = None
    four_bits: bool = False
    fsdp: bool = False
    reference: bool = False

    @property
    def at_once(self) -> int:
        return self.tokens or (GPU_TOKENS if self.gpus else CPU_TOKENS)

    @property
    def recomputes(self) -> bool:
        return self.gpus > 0 if self.checkpointing is None else self.checkpointing


@dataclass(frozen=True, slots=True)
class Workload:
    """The data of a training: samples in groups, tokens of a prompt and of an answer, and how they are gone through."""

    samples: int = 2_048
    group: int = 8
    prompt: int = 512
    answer: int = 256
    batch: int = 32
    steps: int = 128
    epochs: int | None = None

    @property
    def passes(self) -> int:
        """Return the passes as the trainer chooses them."""
        if self.epochs is not None:
            return self.epochs
        a_pass = max(1, round(self.samples / self.batch))
        return min(MOST_PASSES, max(FEWEST_PASSES, math.ceil(self.steps / a_pass)))

    @property
    def steps_in_all(self) -> int:
        return self.passes * max(1, round(self.samples / self.batch))

    @property
    def tokens(self) -> int:
        """Through the model in all: a group's answers share its prompt."""
        return self.passes * (self.samples * self.answer + self.samples // self.group * self.prompt)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on each GPU, or of the process on a CPU, at the worst moment."""

    weights: float
    adapter: float
    activations: float
    head: float
    match: float
    """Bytes beside the weights only: the logits of the check before the first step."""

    @property
    def peak(self) -> float:
        return self.weights + max(self.adapter + self.activations + self.head, self.match)

    def fits(self, gigabytes: float) -> bool:
        return self.peak + RESERVE_GB * GB <= gigabytes * GB * USABLE


def memory(model: ModelShape, setup: Setup) -> Memory:
    width = 2 if setup.gpus else 4
    tokens = setup.at_once
    kept = _block_bytes(model, setup) * tokens
    boundary = width * model.hidden * tokens
    tile = min(tokens, HEAD_TOKENS) * min(model.vocabulary, HEAD_WORDS)
    return Memory(
        weights=_weights(model, setup, width),
        adapter=model.lora_parameters(setup.rank, setup.targets) * (LORA_BYTES + (4 if setup.reference else 0)),
        activations=model.layers * boundary + kept if setup.recomputes else model.layers * kept,
        head=tile * (width if setup.gpus else 3 * width) + (width + 4) * model.hidden * tokens,
        match=MATCH_TOKENS * model.vocabulary * (width + 4),
    )


def hours(model: ModelShape, setup: Setup, workload: Workload) -> float:
    """4 operations a parameter and token, forward and backward through frozen weights; 6 where activations are
    recomputed. On GPUs of PEAK_TFLOPS."""
    operations = (6 if setup.recomputes else 4) * model.parameters * workload.tokens
    return operations / (max(1, setup.gpus) * PEAK_TFLOPS * 1e12 * UTILISATION) / 3600


def remedies(model: ModelShape, setup: Setup, gigabytes: float, longest: int) -> Iterator[tuple[str, Setup]]:
    """Changes that make it fit, the cheapest first; a micro-batch holds at least one sample of `longest` tokens."""
    told = [] if setup.recomputes else ["--set gradient_checkpointing=true"]
    start = replace(setup, checkpointing=True)
    tried = [(told, start)]
    if not setup.four_bits and not setup.fsdp:
        tried.append(([*told, "RATCHET_TRAINER_WEIGHTS=4bit"], replace(start, four_bits=True)))
        for count in (2, 4, 8):
            if count >= setup.gpus:
                spread = [*told, "RATCHET_TRAINER_FSDP=true", f"RATCHET_TRAINER_PROCESSES={count}"]
                tried.append((spread, replace(start, fsdp=True, gpus=count)))
    for changes, candidate in tried:
        tokens = candidate.at_once
        while tokens > longest and not memory(model, replace(candidate, tokens=tokens)).fits(gigabytes):
            tokens //= 2
        smaller = replace(candidate, tokens=tokens)
        if tokens >= longest and memory(model, smaller).fits(gigabytes):
            yield " ".join([*changes, *([f"--set micro_batch_tokens={tokens}"] * (tokens < setup.at_once))]), smaller


def _weights(model: ModelShape, setup: Setup, width: int) -> float:
    rest = model.parameters - model.linear_parameters
    if setup.four_bits:
        largest = max(inputs * outputs for inputs, outputs in model.linear.values())
        return NF4_BYTES * model.linear_parameters + width * (rest + largest)
    if setup.fsdp and setup.gpus > 1:
        block = model.linear_parameters / model.layers
        together = model.embedding_parameters + max(2 * block, 0 if model.tied else model.embedding_parameters)
        return width * (model.parameters / setup.gpus + together)
    return width * model.parameters


def _block_bytes(model: ModelShape, setup: Setup) -> float:
    """Return what autograd keeps of one block, a token: what its norms, attention, gates and LoRAs got as input.

    On a GPU in 16 bits, but the norms' inputs in float32, and an own copy for each LoRA; on a CPU all in float32.
    """
    gates, lora = 4 * model.inner, 4 * 7 * setup.rank
    if setup.gpus:
        return 18 * model.hidden + 10 * model.queries + 2 * gates + lora
    return 4 * (4 * model.hidden + 4 * model.queries + gates) + lora
