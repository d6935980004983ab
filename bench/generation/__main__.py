"""`python -m bench.generation`: groups of 8 on a real model, by all that can generate them here, in turns.

Contestants: plain `generate()` in whole batches of 64, the embedded engine, and the fleet over it. Each gets the same
tasks at once, and its tokens count until the last answer: the seconds of the clock, and the CPU seconds of the
processes that generate. Workloads: `examples`, where all prompts begin with the same example turns, and `distinct`,
where they share the system prompt at most.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import uvloop

from bench.generation.contestants import MODEL, SAMPLING, contestants, prompts
from bench.generation.fleet import Rate
from bench.machine import machine, write_figures
from bench.pipeline.compare import private_broker
from services.agent.engines.engine import GenerationRequest
from services.agent.settings import AgentSettings

BARS = {("engine", "generate"): 3.0, ("fleet", "engine"): 0.95}
"""Ratios of tokens/s, on `examples`."""


def main() -> int:
    """0 if all bars are met, else 1."""
    given = options()
    settings = AgentSettings.read(agent_model=given.model, agent_threads=given.threads)
    with broker(settings) as wired:
        names, workloads = given.contestants.split(","), given.workloads.split(",")
        figures = uvloop.run(measure(wired, names, workloads, given.groups, given.rounds))
    found = {
        "model": given.model,
        "machine": machine(),
        "groups": given.groups,
        "rounds": given.rounds,
        "sampling": SAMPLING.model_dump(),
        "workloads": figures,
        "bars": bars(figures.get("examples", {})),
    }
    write_figures("generation", found)
    print(table(found))
    return 0 if all(bar["met"] for bar in found["bars"]) else 1


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.generation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians over them are printed (3)")
    parser.add_argument("--groups", type=int, default=24, help="tasks in a round, for each (24)")
    parser.add_argument("--model", default=MODEL, help="folder or known model (smollm2)")
    parser.add_argument("--threads", type=int, help="of the engines; chosen by size and load if not given")
    parser.add_argument("--workloads", default="examples,distinct", help="which of the two (both)")
    parser.add_argument("--contestants", default="generate,engine,fleet", help="some of these (all)")
    return parser.parse_args()


@contextmanager
def broker(settings: AgentSettings) -> Iterator[AgentSettings]:
    """The one the environment names, under a namespace of this run; else a private node."""
    if "amqp_url" in settings.model_fields_set:
        yield settings.model_copy(update={"namespace": f"bench-{uuid4().hex[:8]}."})
        return
    with private_broker() as (url, _):
        yield AgentSettings.read(**settings.model_dump(exclude={"amqp_url"}), amqp_url=url)


async def measure(
    settings: AgentSettings, names: Sequence[str], workloads: Sequence[str], groups: int, rounds: int
) -> dict[str, Any]:
    """Return all rounds, by workload and contestant. A first, unmeasured turn warms caches and threads up."""
    with tempfile.TemporaryDirectory() as logs:
        async with contestants(settings, names, Path(logs)) as ready:
            rates: dict[str, dict[str, list[Rate]]] = {one: {name: [] for name in names} for one in workloads}
            for contestant in ready:
                await contestant.run(_requests("distinct", 2, seed=-1))
            for number in range(rounds):
                for workload in workloads:
                    for contestant in ready:
                        rate = await contestant.run(_requests(workload, groups, seed=number))
                        rates[workload][contestant.name].append(rate)
                        said = f"{rate.per_s:.0f} tokens/s, {rate.per_cpu_s:.0f} a CPU second"
                        print(
                            f"{workload} {number + 1}/{rounds}: {contestant.name} {said}", file=sys.stderr, flush=True
                        )
    return {one: {name: _figures(its) for name, its in by_name.items()} for one, by_name in rates.items()}


def _requests(workload: str, groups: int, seed: int) -> list[GenerationRequest]:
    return [GenerationRequest(prompt, SAMPLING) for prompt in prompts(workload, groups, seed)]


def _figures(rates: Sequence[Rate]) -> dict[str, Any]:
    return {
        "tokens_per_s": median(one.per_s for one in rates),
        "tokens_per_cpu_s": median(one.per_cpu_s for one in rates),
        "rounds": [asdict(one) for one in rates],
    }


def bars(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ratios of those that were measured, by the clock and by CPU seconds."""
    found = []
    for (better, other), bar in BARS.items():
        mine, its = figures.get(better), figures.get(other)
        if mine and its:
            ratio, cpu = (mine[one] / its[one] for one in ("tokens_per_s", "tokens_per_cpu_s"))
            found.append(
                {"of": better, "over": other, "ratio": ratio, "cpu_ratio": cpu, "bar": bar, "met": ratio >= bar}
            )
    return found


def table(found: dict[str, Any]) -> str:
    lines = [f"{found['model']} on {found['machine']}, {found['groups']} groups of 8, medians of {found['rounds']}"]
    for workload, figures in found["workloads"].items():
        lines.append(f"\n{workload:10}{'tokens/s':>12}{'tokens/CPU-s':>16}")
        lines += [
            f"{name:10}{one['tokens_per_s']:12.1f}{one['tokens_per_cpu_s']:16.1f}" for name, one in figures.items()
        ]
    lines.append("")
    for bar in found["bars"]:
        said = f"{bar['of']} over {bar['over']}: {bar['ratio']:.2f} (CPU seconds: {bar['cpu_ratio']:.2f})"
        lines.append(f"{said}, {'met' if bar['met'] else 'MISSED'}: bar {bar['bar']}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
