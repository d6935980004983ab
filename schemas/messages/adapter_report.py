"""AdapterReport: what one replica of an agent has loaded, and what it could not load: its answer to an AdapterEvent."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from schemas.messages.base import AdapterVersion, AgentId, BaseModelIdentity, Identifier, Message, Metadata, Timestamp


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
