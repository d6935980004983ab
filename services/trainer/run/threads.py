"""Torch's threads on a CPU follow what other processes leave free: one that waits for its core holds up all others."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from ratchet.models.cpu_threads import CpuThreads


class FreeThreads(TrainerCallback):  # type: ignore[misc]
    """Looks before each step."""

    def __init__(self, threads: CpuThreads) -> None:
        self._threads = threads

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._threads.look()
