"""The names of the logs, and of the files beside them in the logs folder. Nobody else names them."""

from __future__ import annotations

import re
from pathlib import Path

ASSIGNMENTS = "assignments"
"""Every Work as it was admitted, written ahead."""
INTERACTIONS = "agent_interactions"
"""Every sample that was answered, and a line for each task that ended without one."""
FEEDBACK = "feedback"
AUDITS = "auditor_scores"
"""Second verdicts, of the auditor or of the scorer asked once more; no training reads them."""
LABELS = "labels"
"""Labels: what people said of answers they were shown, to know the judge by; no training and no experiment reads it."""
APPROVALS = "approvals"
"""Questions of rollouts to people, and their answers; no training and no experiment reads it."""
PROMISES = "promises"
"""Promises, which no other log has: who else waits for a task, and Responses kept for an external scorer."""
POOLED = "pooled_evidence"
"""The evidence that experiments count of several fleets, in the order in which it counts (experiments/pooled.py)."""
TASK_LOGS = (ASSIGNMENTS, INTERACTIONS)
LEADERS_LOGS = (*TASK_LOGS, FEEDBACK, AUDITS, LABELS, APPROVALS, PROMISES, POOLED)
"""Those that the folder's leader writes, and nobody else: its epoch stands in every line."""

TASK_INDEX = "index.sqlite"
LEFT_BEHIND = re.compile(r"index-(\d+)\.sqlite")
"""The name of the index once a leader that hangs kept the file before: by the epoch of the one that took over."""
QUARANTINE = "quarantine.jsonl"
LAST_BACKUP = "last_backup.json"
"""When `ratchet backup` was last done, and how large its file is."""
FOLLOWER = "follower.json"
"""Name of the file in which a fleet that follows another tells which adapters it still uses (follower.py)."""
SEALS = "log_seals"
"""Folder within that of the adapters: what was written to the logs that teach (ratchet/logs/seals.py)."""
START_OFFSETS = "retention.json"

VALIDATION = "validation:"
"""Beginnings of the experiment ids of the fleet's own tasks: they are kept out of training and experiments."""


ANCHORS = "-anchors-"
RESCORED = "-rescored-"
"""The mark in experiment ids of anchors that are scored again. They are not those of the
first time, and include references: their mean can't be compared with another."""
EVALUATION = "-evaluation-"
"""The mark in experiment ids of evaluations, which operators ask for: ratchet eval."""


GOLDEN_TASKS, REPLAY_TASKS, ANCHOR_TASKS, EVALUATION_TASKS = "golden/", "replay/", "anchor/", "evaluation/"
"""Beginnings of the task ids of the fleet's own: by these a list tells them, whatever is left of their lines."""
BIG_TASKS = "cascade/"
"""The beginning of the ids of what the big model of a cascade is asked, within those of the task's tenant."""
SECOND_VERDICTS = "second-verdict/"
"""Beginning of the ids under which the scorer is asked once more; no log has them."""
OWN_TASKS = (GOLDEN_TASKS, REPLAY_TASKS, ANCHOR_TASKS, EVALUATION_TASKS, BIG_TASKS, f"tenant:*/{BIG_TASKS}")


def file_name(log: str) -> str:
    """Return the name of its active file. A line is known by it also when it has moved to a sealed segment."""
    return f"{log}.jsonl"


def active_path(folder: Path, log: str) -> Path:
    return folder / file_name(log)


def task_indexes(folder: Path) -> list[Path]:
    """The index of tasks in its folder, and what was left behind, the current one last; empty where there is none."""
    numbered = {
        int(match[1]): path for path in folder.glob("index-*.sqlite") if (match := LEFT_BEHIND.match(path.name))
    }
    first = folder / TASK_INDEX
    return [*([first] if first.exists() else []), *(numbered[epoch] for epoch in sorted(numbered))]


def task_index(folder: Path) -> Path:
    """The index of tasks, or where it will be."""
    return next(reversed(task_indexes(folder)), folder / TASK_INDEX)


def is_own(experiment_id: str | None) -> bool:
    """True for the fleet's own tasks: golden and replayed ones, anchors and evaluations. No user gets their Results."""
    return experiment_id is not None and experiment_id.startswith(VALIDATION)


def is_rescoring(experiment_id: str | None) -> bool:
    """True for anchors, which are scored again to see whether the scorer is still the same."""
    return is_own(experiment_id) and any(part in (experiment_id or "") for part in (ANCHORS, RESCORED))


def source(fleet: int, log: str) -> str:
    """Return the name by which the positions of an experiment know the log of a fleet."""
    return f"fleet/{fleet}/{log}"
