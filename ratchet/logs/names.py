"""What the logs are called, and the files beside them in the logs folder. Nobody else names them."""

from __future__ import annotations

from pathlib import Path

ASSIGNMENTS = "assignments"
"""Every Work as it was admitted, written ahead."""
INTERACTIONS = "agent_interactions"
"""Every sample that was answered, and a line for each task that ended without one."""
FEEDBACK = "feedback"
AUDITS = "auditor_scores"
"""What the auditor said of a sample of the tasks; no training reads it."""
LABELS = "labels"
"""What people said of answers they were shown, to know the judge by; no training and no experiment reads it."""
TASK_LOGS = (ASSIGNMENTS, INTERACTIONS)

TASK_INDEX = "index.sqlite"
FEEDBACK_INDEX = "feedback.sqlite"
AUDIT_INDEX = "auditor_scores.sqlite"
LABEL_INDEX = "labels.sqlite"
QUARANTINE = "quarantine.jsonl"
START_OFFSETS = "retention.json"

VALIDATION = "validation:"
"""How the experiment ids of the fleet's own tasks begin: they are kept out of training and experiments."""


def file_name(log: str) -> str:
    """Of its active file. A line is known by it also when it has moved to a sealed segment."""
    return f"{log}.jsonl"


def active_path(folder: Path, log: str) -> Path:
    return folder / file_name(log)


def is_own(experiment_id: str | None) -> bool:
    """True for the fleet's own tasks: golden ones and anchors. No user gets their Results."""
    return experiment_id is not None and experiment_id.startswith(VALIDATION)
