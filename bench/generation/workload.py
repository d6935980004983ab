"""What is generated. `short`: the demo's own task; `long`: answers sampled so hot that most run to their limit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from demos.toy.sort_task import sort_task
from schemas.messages.response import Sample
from schemas.messages.work import Sampling
from services.agent.engines.engine import GenerationRequest


@dataclass(frozen=True, slots=True)
class Workload:
    """`concurrency`: tasks the engine generates at once, each with `sampling.n` samples."""

    name: str
    sampling: Sampling
    concurrency: int

    def prompts(self, seed: int) -> list[str]:
        rng = random.Random(seed)
        return [sort_task(rng, held_out=True).input for _ in range(self.concurrency)]

    def requests(self, seed: int) -> list[GenerationRequest]:
        return [GenerationRequest(prompt, self.sampling) for prompt in self.prompts(seed)]


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens, the seconds they took, and the CPU seconds of the process with the engine, all its threads included."""

    tokens: int
    seconds: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def per_cpu_s(self) -> float:
        return self.tokens / self.cpu_s


def workloads(samples: int, concurrency: int, long_tokens: int, hot: float) -> list[Workload]:
    return [
        Workload("short", Sampling(n=samples, max_tokens=16), concurrency),
        Workload("long", Sampling(n=samples, temperature=hot, max_tokens=long_tokens), concurrency),
    ]


def tokens(samples: Sequence[Sample]) -> int:
    return sum(len(sample.completion_ids or ()) for sample in samples)
