"""AdapterEvent tells an agent which adapters to have loaded; AdapterReport is a replica's answer to it.

An event says all that holds as of one revision of the registry, not only what changed, and it is repeated: a replica
that missed one is right after the next.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.base import (
    AdapterVersion,
    AgentId,
    BaseModelIdentity,
    Identifier,
    Message,
    Metadata,
    Record,
    Sha256,
    Timestamp,
)


class AdapterReport(Message):
    TYPE: ClassVar[str] = "adapter_report.v1"

    agent_id: AgentId
    replica: Identifier = Field(description="Unique per process of an agent, new at each start.")
    metadata: Metadata = Metadata()
    revision: int = Field(ge=0, description="Of the AdapterEvent it answers.")
    announced_at: Timestamp | None = Field(
        None, description="`metadata.timestamp` of the AdapterEvent it answers: this replica was there after that."
    )
    base: BaseModelIdentity | None = Field(None, description="The base model it runs, where it can tell.")
    loaded: tuple[AdapterVersion, ...] = ()
    refused: dict[AdapterVersion, str] = Field(default_factory=dict, description="Version → why it can't be loaded.")


AdapterMove = Literal[
    "standing",
    "validating",
    "experiment_started",
    "promoted",
    "rolled_back",
    "rejected",
    "inconclusive",
    "aborted",
    "settled",
    "retired",
]


class ServedAdapter(Record):
    """An adapter to keep loaded. The base model needs no loading and is never listed."""

    version: AdapterVersion
    sha256: Sha256


class AdapterEvent(Message):
    """`event` is what happened last; `standing` when nothing did."""

    TYPE: ClassVar[str] = "adapter_event.v1"

    agent_id: AgentId
    event: AdapterMove
    metadata: Metadata = Metadata()
    version: AdapterVersion | None = Field(None, description="The version the event is about.")
    reason: str | None = None
    revision: int = Field(ge=0, description="Of the registry. An event of an older revision than known is stale.")
    primary: AdapterVersion
    candidate: AdapterVersion | None = None
    adapters: tuple[ServedAdapter, ...] = Field((), description="To be loaded; whatever else is loaded may go.")
