"""One run of one contestant, asked for by name: importable by the process it is measured in, and light for who asks."""

from __future__ import annotations


def measure(name: str, workload: int, *, real: bool = False) -> dict[str, float]:
    """`workload`: its place in WORKLOADS or REAL. Torch is imported here, in the process that is measured."""
    from bench.training.contestants import measure
    from bench.training.workloads import REAL, WORKLOADS

    return measure(name, (REAL if real else WORKLOADS)[workload])
