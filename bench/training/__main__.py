"""python -m bench.training [--runs 3] [--real]: the trainer beside stock TRL GRPOTrainer on the same completions, on a
CPU. --real: SmolLM2 (ratchet models fetch smollm2).

Each run is a process of its own; medians. A sample counts for both, also where it has no advantage and is left out:
that is part of the work saved. Figures go to bench/out/training.json (training-real.json). Exits 1 if the trainer is
slower anywhere.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor

from bench.machine import machine, write_figures

NAMES = ("ratchet", "TRL")


def main() -> None:
    from bench.training.workloads import REAL, WORKLOADS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--real", action="store_true")
    options = parser.parse_args()
    print(f"{machine()}; medians of {options.runs}, one thread\n")
    print(f"{'':42}{'samples/s':>22}{'ratio':>8}{'per CPU-s':>11}{'peak MB':>18}")
    figures = {}
    for number, workload in enumerate(REAL if options.real else WORKLOADS):
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in NAMES}
        for _ in range(options.runs):
            for name, found in runs.items():
                found.append(in_a_process(name, number, real=options.real))
        figures[workload.name] = medians = {name: median(found) for name, found in runs.items()}
        us, them = medians["ratchet"], medians["TRL"]
        print(
            f"{workload.name:42}{us['samples_per_s']:>10.2f} : {them['samples_per_s']:>9.2f}"
            f"{us['samples_per_s'] / them['samples_per_s']:>7.2f}x"
            f"{us['samples_per_cpu_s'] / them['samples_per_cpu_s']:>10.2f}x"
            f"{us['peak_mb']:>9.0f} : {them['peak_mb']:>6.0f}",
            flush=True,
        )
    write_figures("training-real" if options.real else "training", {"machine": machine(), "figures": figures})
    slower = [name for name, one in figures.items() if ratio(one) < 1.0]
    print(f"\nslower than TRL: {', '.join(slower) or 'nowhere'}")
    sys.exit(bool(slower))


def ratio(medians: dict[str, dict[str, float]]) -> float:
    return medians["ratchet"]["samples_per_cpu_s"] / medians["TRL"]["samples_per_cpu_s"]


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def measure(name: str, workload: int, *, real: bool) -> dict[str, float]:
    """Run one contestant on one workload. Torch is imported here, in the process that is measured."""
    from bench.training.contestants import measure
    from bench.training.workloads import REAL, WORKLOADS

    return measure(name, (REAL if real else WORKLOADS)[workload])


def in_a_process(name: str, workload: int, *, real: bool) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(measure, name, workload, real=real).result()


if __name__ == "__main__":
    main()
