"""AdapterEvent: which adapters an agent should have loaded, as of one revision of the registry.

It says all that holds, not only what changed, and it is repeated: a replica that missed one is right after the next.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.base import AdapterVersion, AgentId, Message, Metadata, Record, Sha256

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
