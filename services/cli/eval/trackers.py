"""Have the trainer's process give an evaluation to the trackers: the command line imports neither them nor torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from ratchet.service.errors import one_line

MOST_S = 180.0
"""A tracker that is away may be asked again and again by its client."""


def give_to_trackers(
    evaluation: Path,
    environment: Mapping[str, str],
    command: tuple[str, ...] = (sys.executable, "-m", "services.trainer.train"),
    most_s: float = MOST_S,
) -> str | None:
    """Return in a sentence which tracker did not get it; None where all has, or RATCHET_TRAINER_REPORT_TO names no
    tracker.

    `environment`: the trainer's.
    """
    if not environment.get("RATCHET_TRAINER_REPORT_TO", "").strip():
        return None
    with subprocess.Popen(
        [*command, "--evaluation", str(evaluation)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as trainer:
        try:
            said, complaints = trainer.communicate(timeout=most_s)
        except subprocess.TimeoutExpired:
            return f"the trackers did not take the evaluation within {most_s:.0f} s"
        finally:
            end(trainer)
    if trainer.returncode == 0:
        return None
    faults = [json.loads(line)["warning"] for line in said.splitlines()]
    last = (complaints.strip().splitlines() or [f"its process ended with {trainer.returncode}"])[-1]
    return "; ".join(faults) or f"no tracker got the evaluation: {one_line(last)}"


def end(process: subprocess.Popen[str]) -> None:
    """It, its session, and what it started in sessions of their own, as trackers' clients do. Blocks for a moment."""
    with suppress(psutil.NoSuchProcess):
        for helper in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                helper.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
