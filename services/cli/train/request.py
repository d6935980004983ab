"""Ask the running fleet's trainer for a new adapter. How it ended is told to the orchestrator, and in the registry."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from ratchet.bus.message_id import derived_id
from ratchet.bus.topology import TRAINING
from schemas.messages.base import Metadata, explain
from schemas.messages.train_request import TrainRequest
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.publishing import publish
from services.cli.terminal import UsageError


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """As typed; what is None is the trainer's choice. `assignments`: hyperparameters as name=value."""

    agent: str
    algorithm: str
    parent: str | None
    since: int
    loss: str | None
    epochs: int | None
    lr: float | None
    seed: int
    assignments: tuple[str, ...]


def request_of(options: TrainOptions) -> TrainRequest:
    """With an id of its own. Raises UsageError for options that can't be; whether they make sense the trainer says."""
    now = datetime.now(UTC)
    try:
        return TrainRequest(
            request_id=f"operator-{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}",
            agent_id=options.agent,
            metadata=Metadata(timestamp=now, source="operator"),
            algorithm=options.algorithm,
            parent_version=options.parent,
            since=options.since,
            hyperparameters=hyperparameters_of(options.loss, options.epochs, options.lr, options.assignments),
            seed=options.seed,
        )
    except ValidationError as error:
        raise UsageError(explain("request to train", error)) from None


def hyperparameters_of(
    loss: str | None, epochs: int | None, lr: float | None, assignments: Sequence[str]
) -> dict[str, Any]:
    """Those that are given. Raises UsageError for what is no assignment."""
    named = {"loss": loss, "epochs": epochs, "learning_rate": lr}
    return {name: value for name, value in named.items() if value is not None} | dict(map(_assigned, assignments))


def _assigned(text: str) -> tuple[str, Any]:
    """`name=value`, where the value is JSON, or else text."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--set {text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def publish_train_request(access: FleetAccess, request: TrainRequest) -> None:
    """Returns once the broker has it. Raises BusError, CommandError where no fleet ever was."""
    publish(access, TRAINING, request, derived_id(request.request_id, "train"))
