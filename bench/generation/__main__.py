"""`python -m bench.generation`: groups of 8 on a real model, by all that can generate them here, in turns.

Contestants: plain `generate()` in whole batches of 64, the embedded engine, and the fleet over it. Each gets the same
tasks at once, and its tokens count until the last answer: the seconds of the clock, and the CPU seconds of the
processes that generate.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median

import uvloop

from bench.generation.contestants import SAMPLING, Rate, contestants, make_requests
from bench.machine import machine, write_figures
from bench.rig import private_broker
from services.agent.settings import AgentSettings

BARS = {("engine", "generate"): 3.0, ("fleet", "engine"): 0.95}
"""Ratios of tokens/s."""


def main() -> int:
    """0 if all bars are met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.generation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians over them are printed (3)")
    parser.add_argument("--groups", type=int, default=24, help="tasks in a round, for each (24)")
    parser.add_argument("--model", default="smollm2", help="folder or known model (smollm2)")
    given = parser.parse_args()
    with private_broker() as (url, _):
        settings = AgentSettings.read(agent_model=given.model, amqp_url=url)
        rates = uvloop.run(measure(settings, given.groups, given.rounds))
    rounds = {name: [asdict(one) for one in its] for name, its in rates.items()}
    write_figures("generation", vars(given) | {"machine": machine(), "sampling": SAMPLING.model_dump()} | rounds)
    print(f"{given.model} on {machine()}, {given.groups} groups of 8, medians of {given.rounds}")
    print(f"{'':10}{'tokens/s':>12}{'tokens/CPU-s':>16}")
    per_s = {name: median(one.per_s for one in its) for name, its in rates.items()}
    per_cpu_s = {name: median(one.per_cpu_s for one in its) for name, its in rates.items()}
    for name in rates:
        print(f"{name:10}{per_s[name]:12.1f}{per_cpu_s[name]:16.1f}")
    met = True
    for (better, other), bar in BARS.items():
        ratio, cpu_ratio = per_s[better] / per_s[other], per_cpu_s[better] / per_cpu_s[other]
        met &= ratio >= bar
        outcome = "met" if ratio >= bar else "MISSED"
        print(f"{better} over {other}: {ratio:.2f} (CPU seconds: {cpu_ratio:.2f}), {outcome}: bar {bar}")
    return 0 if met else 1


async def measure(settings: AgentSettings, groups: int, rounds: int) -> dict[str, list[Rate]]:
    """Return the rates of each contestant. A first, unmeasured turn warms caches and threads up."""
    with tempfile.TemporaryDirectory() as logs:
        async with contestants(settings, Path(logs)) as ready:
            for run in ready.values():
                await run(make_requests(2, seed=-1))
            rates: dict[str, list[Rate]] = {name: [] for name in ready}
            for number in range(rounds):
                for name, run in ready.items():
                    rate = await run(make_requests(groups, seed=number))
                    rates[name].append(rate)
                    said = f"{rate.per_s:.0f} tokens/s, {rate.per_cpu_s:.0f} a CPU second"
                    print(f"{number + 1}/{rounds}: {name} {said}", file=sys.stderr, flush=True)
    return rates


if __name__ == "__main__":
    sys.exit(main())
