"""Kill or halt this process at a named step: how the fault tests prove that nothing is lost. Off unless the environment
asks.

RATCHET_FAILPOINT="fsynced:3" makes the third passage of the step `fsynced` a `kill -9` of the process by itself. With
RATCHET_FAILPOINT="@<file>" it stops itself (SIGSTOP) when it comes to the step whose name somebody has written into the
file, of STEP_BYTES, and takes the name out: whoever wrote it does what it likes meanwhile, and ends or continues it.
"""

from __future__ import annotations

import os
import signal
from mmap import mmap
from pathlib import Path

STEPS = ("received", "worked", "published", "confirmed", "written", "fsynced", "before-ack")
"""received: off the queue · worked: result computed · published: sent, no confirm yet · confirmed: broker has it ·
written: log line written, not synced · fsynced: log line on disk · before-ack: all done, upstream not yet acked."""

TASK_STEPS = ("admitted", "trajectory-written", "trajectory-logged", "settled", "telling")
"""admitted: its assignment is on disk, its Work not sent · trajectory-written: on disk, its line is not · -logged: its
line is, and it still counts as one without · settled: its interactions are on disk, it is still counted as open ·
telling: it is closed, its user not told."""

REGISTRY_STEPS = (
    "decision-written",
    "decision-synced",
    "registry-written",
    "registry-renamed",
    "adapter-copied",
    "adapter-manifest",
    "adapter-renamed",
)
"""decision-…: in the ledger, not synced · on disk. registry-…: temporary file on disk · in place, folder not synced.
adapter-…: files on disk · manifest on disk · folder in place, its parent not synced."""

TRAINER_STEPS = ("job-recorded", "window-fixed", "checkpointed", "trained", "adapter-published", "outcome-written")
"""job-recorded: request on disk, not acked. window-fixed: the choices of a run are on disk. checkpointed: a checkpoint
is whole. trained: before the adapter is saved. adapter-published: in place, the outcome is not written.
outcome-written: on disk, nobody told."""
RETENTION_STEPS = ("ids-kept", "start-moved", "segment-removed")
"""ids-kept: the ids of a segment's tasks are on disk. start-moved: the log begins behind it, which is on disk.
segment-removed: its file is gone."""
RUNNER_STEPS = ("rollout-begun", "call-sampled", "rollout-waits", "rollout-ended", "rollout-kept", "approval-logged")
"""rollout-begun: its key and its socket are there, its program is not. call-sampled: a token of an answer has come, its
program has not heard of it. rollout-waits: its program has ended for a question that nobody has heard of.
approval-logged: a question, or its answer, is in the orchestrator's log, and nobody has been told. rollout-ended: it is
over, and nowhere on disk. rollout-kept: it is on disk, its task is not answered."""
MANAGER_STEPS = ("tasks-released", "results-stored")
"""tasks-released: they are marked as released, and not published. results-stored: their tasks have ended."""
ALL_STEPS = (*STEPS, *TASK_STEPS, *REGISTRY_STEPS, *TRAINER_STEPS, *RETENTION_STEPS, *RUNNER_STEPS, *MANAGER_STEPS)
STEP_BYTES = 64


def _parse(text: str) -> tuple[str, int]:
    step, _, count = text.partition(":")
    if text and step not in ALL_STEPS:
        raise ValueError(f"RATCHET_FAILPOINT={text!r}: no such step; one of {', '.join(ALL_STEPS)}")
    return step, int(count or 1)


def _map_file(path: Path) -> mmap:
    with path.open("r+b") as file:
        return mmap(file.fileno(), STEP_BYTES)


_given = os.environ.get("RATCHET_FAILPOINT", "")
_halt = _map_file(Path(_given[1:])) if _given.startswith("@") else None
_step, _left = _parse("" if _halt else _given)


def is_armed(step: str) -> bool:
    """True if this step was named: then what comes before it must really be done, not buffered."""
    return step == _step or (_halt is not None and _halt[:].rstrip(b"\0") == step.encode())


def reach(step: str) -> None:
    """Passes, unless this is the passage that was named: then the process is gone, or halted."""
    global _left
    if not _given or not is_armed(step):
        return
    if _halt is not None:
        _halt[:] = bytes(STEP_BYTES)
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
