"""Have the trainer's process give an evaluation to the trackers: the command line imports neither them nor torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ratchet.service.errors import one_line

MOST_S = 180.0
"""A tracker that is away may be asked again and again by its client."""


def give_to_trackers(
    evaluation: Path,
    environment: Mapping[str, str],
    command: tuple[str, ...] = (sys.executable, "-m", "services.trainer.train"),
    most_s: float = MOST_S,
) -> str | None:
    """In a sentence what did not get it; None where all has, or RATCHET_TRAINER_REPORT_TO names no tracker.

    `environment`: the trainer's.
    """
    if not environment.get("RATCHET_TRAINER_REPORT_TO", "").strip():
        return None
    try:
        ended = subprocess.run(
            [*command, "--evaluation", str(evaluation)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=most_s,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return f"the trackers did not take the evaluation within {most_s:.0f} s"
    if ended.returncode == 0:
        return None
    faults = [json.loads(line)["warning"] for line in ended.stdout.splitlines()]
    last = (ended.stderr.strip().splitlines() or [f"its process ended with {ended.returncode}"])[-1]
    return "; ".join(faults) or f"no tracker got the evaluation: {one_line(last)}"
