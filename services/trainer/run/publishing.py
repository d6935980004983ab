"""A finished run becomes an adapter: its files, its card, its report; published, and announced."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.manifest import TRAINING_REPORT
from ratchet.adapters.publish import publish_adapter
from ratchet.service import failpoint
from schemas.messages.adapter_trained import AdapterTrained
from schemas.messages.base import Metadata
from schemas.records.adapter_card import AdapterCard
from services.trainer.algorithms.policy import save_policy
from services.trainer.data.selection import Selection
from services.trainer.run.choices import Choices


@dataclass(frozen=True, slots=True)
class Finished:
    choices: Choices
    selection: Selection
    report: Mapping[str, Any]
    metrics: dict[str, Any]
    held_out_at: datetime | None
    at: datetime


def publish(finished: Finished, policy: Any, scratch: Path, adapters_dir: Path) -> AdapterTrained:
    """Returns when the new version is in place. Done again after a kill, it finds the version that is there.

    Raises AdapterError, RegistryError, DiskFull and JournalError.
    """
    request = finished.choices.request
    files = save_policy(policy, finished.choices.base, scratch)
    files[TRAINING_REPORT] = json.dumps(finished.report, indent=2).encode() + b"\n"
    folder = publish_adapter(files, _card(finished), adapters_dir, request.agent_id)
    failpoint.reach("adapter-published")
    return AdapterTrained(
        request_id=request.request_id,
        agent_id=request.agent_id,
        status="trained",
        metadata=Metadata(timestamp=finished.at, source="trainer"),
        adapter_version=folder.name,
        adapter_sha256=adapter_sha256(folder),
        parent_version=finished.choices.parent,
        counts=finished.selection.counts,
        metrics=finished.metrics,
    )


def _card(finished: Finished) -> AdapterCard:
    request = finished.choices.request
    return AdapterCard(
        run_id=request.request_id,
        parent=finished.choices.parent,
        base=finished.choices.base,
        algorithm=request.algorithm,
        data=finished.selection.window,
        hyperparameters=finished.report["hyperparameters"],
        metrics=finished.metrics,
        held_out_at=finished.held_out_at,
        created=finished.at,
    )
