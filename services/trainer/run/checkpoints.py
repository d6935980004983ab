"""Checkpoints a run can go on from after a kill -9: written now and then, used only if whole.

Transformers writes them; a marker, written last, says that all of one is on disk. What they hold is Transformers' own:
adapter, optimiser, schedule, random state, step.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback

from ratchet.files.atomic_file import sync_folder
from ratchet.service import failpoint

MARKER = "whole"
PREFIX = "checkpoint-"


class Checkpoints(TrainerCallback):  # type: ignore[misc]
    """Asks for one every `every_s` seconds (0: after each step), and marks it when it is there."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._last = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> Any:
        due = time.monotonic() - self._last >= self._every_s
        if PartialState().num_processes > 1:  # by one clock: a process that saves waits for all others
            (due,) = broadcast_object_list([due])
        if due and state.global_step < state.max_steps:
            control.should_save = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        PartialState().wait_for_everyone()  # each writes its random state
        if state.is_world_process_zero:
            mark_whole(Path(args.output_dir) / f"{PREFIX}{state.global_step}")
            # Here and not in the other processes: one of them could die first, and its launcher end this one while it
            # marks.
            failpoint.reach("checkpointed")
        self._last = time.monotonic()


def mark_whole(folder: Path) -> None:
    """Returns when the checkpoint and its marker are on disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            _sync(path)
    (folder / MARKER).touch()
    sync_folder(folder)
    sync_folder(folder.parent)


def newest_checkpoint(folder: Path) -> Path | None:
    """The last whole one."""
    whole = [path for path in folder.glob(f"{PREFIX}*") if (path / MARKER).exists()]
    return max(whole, key=steps_done, default=None)


def steps_done(checkpoint: Path | None) -> int:
    """Up to that checkpoint; 0 without one."""
    return int(checkpoint.name.removeprefix(PREFIX)) if checkpoint else 0


def remove_broken(folder: Path) -> None:
    """Those a kill left half-written; they would be in the way of the next of that name."""
    for path in folder.glob(f"{PREFIX}*"):
        if not (path / MARKER).exists():
            shutil.rmtree(path)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
